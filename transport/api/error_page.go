package api

import (
	"fmt"
	"regexp"
	"strings"

	"carillon/docs"
	"carillon/transport/api/web"
)

// errorPages are the texts about the codes of errors, by path: the type of a problem is the path of
// its page, which needs no public address then, and no token.
var errorPages = readErrorPages(docs.Errors)

var errorPattern = newRouter([]route{{method: "GET", path: "/errors", scope: web.ScopeOpen, handle: (*request).showError}}).byLength[1][0]

var (
	anchor       = regexp.MustCompile(`<a id="[a-z_]+"></a>`)
	markdownLink = regexp.MustCompile(`\[([^]]+)\]\(([^)]+)\)`)
)

// readErrorPages makes a page of each row of the table of codes.
func readErrorPages(table string) map[string]string {
	pages := map[string]string{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, " | ")
		if len(cells) != 4 || !anchor.MatchString(cells[2]) {
			continue
		}
		code := strings.Trim(cells[0], "| `")
		text := fmt.Sprintf("%s (%s)\n\nWhy: %s\n\nWhat to do: %s\n", code, cells[1],
			anchor.ReplaceAllString(cells[2], ""), strings.TrimRight(cells[3], " |\n"))
		pages[web.ErrorPath+code] = markdownLink.ReplaceAllString(text, "$1 (docs/$2)")
	}
	return pages
}

func (rq *request) showError() *web.Problem {
	rq.Ctx.SetContentType("text/plain; charset=utf-8")
	rq.Ctx.Response.SetBodyString(errorPages[rq.pathText()])
	return nil
}
