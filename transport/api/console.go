package api

import (
	"bytes"

	"carillon/transport/api/web"
	"carillon/transport/console"
)

// consolePattern stands for every file of the console. Its files need no token: they hold no data.
var consolePattern = newRouter([]route{{method: "GET", path: "/console", scope: web.ScopeOpen, handle: (*request).showConsole}}).byLength[1][0]

// page is the pattern for a path of the console or of a code's page, nil when it is neither.
func (rq *request) page() *pattern {
	switch path := rq.pathText(); {
	case errorPages[path] != "":
		return errorPattern
	case rq.s.cfg.Console.File(path) != nil:
		return consolePattern
	}
	return nil
}

func (rq *request) pathText() string {
	return "/" + string(bytes.Join(rq.segments, []byte{'/'}))
}

func (rq *request) showConsole() *web.Problem {
	f := rq.s.cfg.Console.File(rq.pathText())
	h := &rq.Ctx.Response.Header
	for _, pair := range console.Headers {
		h.Set(pair[0], pair[1])
	}
	h.Set("ETag", f.ETag)
	if string(rq.Ctx.Request.Header.Peek("If-None-Match")) == f.ETag {
		rq.Ctx.SetStatusCode(304)
		return nil
	}
	h.SetContentType(f.Type)
	rq.Ctx.Response.SetBodyRaw(f.Body)
	return nil
}
