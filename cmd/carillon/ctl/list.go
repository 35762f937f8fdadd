package ctl

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/tidwall/gjson"

	"carillon/client"
	"carillon/cmd/carillon/terminal"
)

type listCmd struct {
	Topic    string   `arg:"" optional:"" help:"Topic; without one: all topics that the token reaches. These are listed in parts of some million timers, each by due time."`
	ID       string   `name:"id" placeholder:"ID" help:"With this id, in whatever topic if none is given."`
	State    string   `placeholder:"STATE,…" help:"scheduled, leased, done, dead, cancelled; else the first two."`
	DueFrom  string   `placeholder:"TIME" help:"Due at this time or later."`
	DueTo    string   `placeholder:"TIME" help:"Due before this time."`
	Label    []string `placeholder:"LABEL" help:"With this label; repeat for: with all of these."`
	IDPrefix string   `name:"id-prefix" placeholder:"PREFIX" help:"With an id that begins with this."`
	Limit    int      `default:"100" help:"Limit; 0 is all (${default})."`
}

func (l *listCmd) Run(ctl *Command, term *terminal.Terminal) error {
	if l.Topic != "" && l.ID != "" {
		return terminal.Usagef("--id: finds a timer in all topics, so it goes without TOPIC; where the topic is known: carillon ctl get TOPIC ID")
	}
	query := queryOf("id", l.ID, "state", l.State, "due_from", l.DueFrom, "due_to", l.DueTo, "id_prefix", l.IDPrefix)
	query["label"] = l.Label
	if !ctl.JSON {
		query.Set("payload", "false")
	}
	pages := listing{path: client.Path("timers"), query: query, member: "timers", limit: l.Limit, print: printTimers(0)}
	if l.Topic != "" {
		pages.path, pages.print = client.Path("topics", l.Topic, "timers"), printTimers(1)
	}
	return ctl.showPages(term, pages)
}

// listing is a call whose answer comes in pages: {"<member>": […], "next_cursor"?}.
type listing struct {
	path   string
	query  url.Values
	member string
	limit  int // rows in all; 0: no limit
	print  func(io.Writer, []json.RawMessage) error
}

// maxPage is the API's largest page.
const maxPage = 1000

// showPages prints the rows of as many pages as it takes, once it has them all: a table's columns
// are as wide as the widest row needs.
func (c *Command) showPages(term *terminal.Terminal, l listing) error {
	if l.limit < 0 {
		return terminal.Usagef("--limit: must not be negative")
	}
	var rows []json.RawMessage
	cursor := ""
	for {
		size := maxPage
		if l.limit > 0 {
			size = min(size, l.limit-len(rows))
		}
		page, next, err := c.page(l, size, cursor)
		if err != nil {
			return err
		}
		rows, cursor = append(rows, page...), next
		if cursor == "" || (l.limit > 0 && len(rows) >= l.limit) {
			break
		}
	}
	if c.JSON {
		return printPages(term.Out, l.member, rows, cursor)
	}
	if err := l.print(term.Out, rows); err != nil {
		return err
	}
	if cursor != "" {
		fmt.Fprintf(term.Err, "carillon: there are more; --limit shows them (0 for all)\n")
	}
	return nil
}

// allPages gives take a listing page by page, without a limit.
func (c *Command) allPages(l listing, take func(page []json.RawMessage) error) error {
	for cursor := ""; ; {
		page, next, err := c.page(l, maxPage, cursor)
		if err == nil {
			err = take(page)
		}
		if cursor = next; err != nil || cursor == "" {
			return err
		}
	}
}

func (c *Command) page(l listing, size int, cursor string) (rows []json.RawMessage, next string, err error) {
	query := queryOf("limit", strconv.Itoa(size), "cursor", cursor)
	maps.Copy(query, l.query)
	request := client.Request{Method: http.MethodGet, Path: l.path, Query: query}
	node := *c
	if cursor != "" { // a listing that has begun outlasts a shard without a leader
		request.Repeatable, node.options.Retries = true, 0 // 0: as often as the client does by itself
		if err := node.connect(); err != nil {
			return nil, "", err
		}
	}
	body, err := node.do(request)
	if err != nil {
		return nil, "", err
	}
	list := gjson.GetBytes(body, l.member)
	if !gjson.ValidBytes(body) || !list.IsArray() {
		return nil, "", fmt.Errorf("the answer has no %q (is --url right?): %.200q", l.member, body)
	}
	for _, row := range list.Array() {
		rows = append(rows, json.RawMessage(row.Raw))
	}
	return rows, gjson.GetBytes(body, "next_cursor").String(), nil
}

// queryOf makes a query of names, each with its value behind it, but for those that have none.
func queryOf(pairs ...string) url.Values {
	query := url.Values{}
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			query.Set(pair[0], pair[1])
		}
	}
	return query
}
