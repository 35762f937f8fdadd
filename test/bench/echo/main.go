// Command echo is the yardstick of the benchmarks: a fasthttp server that answers each POST with
// its own body, and so does the least that any HTTP service on this machine must do.
package main

import (
	"log"
	"os"

	"github.com/valyala/fasthttp"
)

func main() {
	addr := "127.0.0.1:7790"
	if len(os.Args) > 1 {
		addr = os.Args[1]
	}
	log.Fatal(fasthttp.ListenAndServe(addr, func(ctx *fasthttp.RequestCtx) {
		ctx.SetContentType("application/json")
		ctx.SetBody(ctx.PostBody())
	}))
}
