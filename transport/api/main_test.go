package api

import (
	"testing"

	"go.uber.org/goleak"
)

// fasthttp keeps a clock for the Date header and a sweeper of idle workers for as long as the
// process lives or a little longer than its server; everything else must be gone.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}
