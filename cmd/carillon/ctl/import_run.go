package ctl

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"carillon/client"
	"carillon/cmd/carillon/terminal"
)

// importRun sends the adds of a file in batches.
type importRun struct {
	ctl  *Command
	term *terminal.Terminal

	head    *exportHead
	ops     []importOp
	bytes   int
	added   int
	there   int
	late    int // of those added: due more than a minute before
	refused int // in all topics
	hold    []importOp
}

type importOp struct {
	id   string
	body []byte
	then []byte // the patch of a timer that is added paused; nil: it is not

	// Of a timer that is added paused: its time until the patch, in Unix ms, and whether an earlier
	// import has added it.
	farMs int64
	there bool
}

// Bounds of a batch, within those of a node. Over a line of 1 Mbit/s it takes 8 s: a node waits for
// 30.
const (
	importOps   = 1000
	importBytes = 1 << 20
)

// Bounds of the messages and of the tries.
const (
	importSaid  = 10 // refusals that are shown one by one
	importTries = 20 // of a batch, without any progress
	importPause = 100 * time.Millisecond
)

// topic makes the topic, or leaves one that is there with its own policy. Timers that were held by
// a pause stay so, also where the topic was made by hand, or by an import that went no further.
func (r *importRun) topic(head *exportHead) error {
	r.head, r.added, r.there, r.late = head, 0, 0, 0
	there, err := r.ctl.findTopic(head.Topic)
	if err != nil {
		return err
	}
	path := client.Path("topics", head.Topic)
	if there == nil {
		policy, err := shownPolicy(head.Policy)
		if err == nil {
			_, err = r.ctl.do(client.Request{Method: http.MethodPut, Path: path, Body: policy})
		}
		if err != nil {
			return err
		}
	}
	if !head.Paused || there != nil && (there.Paused || there.Counts.Scheduled+there.Counts.Leased+there.Counts.Done+there.Counts.Dead > 0) {
		return nil
	}
	if _, err = r.ctl.do(client.Request{Method: http.MethodPost, Path: client.Path("topics", head.Topic, "pause")}); err != nil {
		return fmt.Errorf("%s was paused at the export, and is not yet: %w", head.Topic, err)
	}
	if there != nil {
		fmt.Fprintf(r.term.Err, "carillon: %s is paused, as it was at the export; carillon ctl topics resume %s has its timers called\n", head.Topic, head.Topic)
	}
	return nil
}

// findTopic returns nil for a topic that is not there.
func (c *Command) findTopic(topic string) (*topicRow, error) {
	row, err := answerOf[topicRow](c.do(client.Request{Method: http.MethodGet, Path: client.Path("topics", topic)}))
	if errors.Is(err, client.ErrUnknownTopic) {
		return nil, nil
	}
	return row, err
}

// shownPolicy is a policy without the fields that are shown only in part.
func shownPolicy(policy json.RawMessage) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(policy, &fields); err != nil {
		return nil, fmt.Errorf("the topic's policy: %w", err)
	}
	delete(fields, "secrets")
	delete(fields, "signing_keys")
	if hidesHeader(fields["callback"]) {
		callback, err := withoutHidden(fields["callback"])
		if err != nil {
			return nil, err
		}
		fields["callback"] = callback
	}
	return plain(fields), nil
}

func (r *importRun) timer(add *importedAdd) error {
	op, err := add.op()
	if err != nil {
		return err
	}
	if len(r.ops) == importOps || r.bytes+len(op.body) > importBytes {
		if err := r.send(); err != nil {
			return err
		}
	}
	r.ops, r.bytes = append(r.ops, op), r.bytes+len(op.body)
	return nil
}

func (r *importRun) end() error {
	if err := r.send(); err != nil {
		return err
	}
	if r.ctl.JSON {
		o := &object{}
		o.set("topic", r.head.Topic)
		o.set("added", r.added)
		o.set("there", r.there)
		if r.late > 0 {
			o.set("late", r.late)
		}
		return printJSON(r.term.Out, o.bytes())
	}
	late := ""
	if r.late > 0 {
		late = fmt.Sprintf("; %s due more than a minute ago", terminal.Many(int64(r.late), "of those added was", "of those added were"))
	}
	_, err := fmt.Fprintf(r.term.Out, "%s: %d added, %d there already%s\n", r.head.Topic, r.added, r.there, late)
	return err
}

// op is the operation of a batch. It decides how an id that is in use is treated, and a time that
// is past, over the topic's rules. A paused timer is added for a day long after the import. Then it
// is paused, and then it gets its time by the patch, so that it is never called between.
func (a *importedAdd) op() (op importOp, err error) {
	op.id = a.id
	line := a.line
	hides, paused := hidesHeader(a.fields["callback"]), string(a.fields["paused"]) == "true"
	if hides || paused {
		fields, patch := &object{}, &object{}
		for _, name := range slices.Sorted(maps.Keys(a.fields)) {
			switch {
			case name == "callback" && hides, name == "paused" && paused:
			case paused && slices.Contains([]string{"at", "at_ms", "at_local", "zone", "repeat"}, name):
				patch.raw(name, a.fields[name])
			default:
				fields.raw(name, a.fields[name])
			}
		}
		if hides {
			callback, err := withoutHidden(a.fields["callback"])
			if err != nil {
				return op, err
			}
			fields.raw("callback", callback)
		}
		if paused {
			// For a year it is the same add if the import is repeated.
			op.farMs = time.Date(time.Now().UTC().Year()+2, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
			fields.set("at_ms", op.farMs)
			op.then = patch.bytes()
		}
		line = fields.bytes()
	}
	rules := `{"op":"add","merge":"reject",`
	if a.fields["if_late"] == nil {
		rules += `"if_late":"fire",` // it was taken, and became due since
	}
	op.body = append([]byte(rules), line[1:]...)
	return op, nil
}

// pause holds the timers that were added to be paused, and gives them their times. One that has
// ended, or runs, since an earlier import is left alone.
func (r *importRun) pause() error {
	for i := range r.hold {
		o := &r.hold[i]
		err := r.pauseOne(o)
		p, is := errors.AsType[*client.Problem](err)
		switch {
		case is && (p.Status == http.StatusGone || p.Code == client.ErrInFlight):
		case is && !p.Retryable:
			r.refuse(o.id, p, "")
		case err != nil:
			return fmt.Errorf("%w; some timers that were paused have another time yet: the same import continues from it", err)
		}
	}
	r.hold = r.hold[:0]
	return nil
}

// pauseOne leaves alone what an earlier import has finished: somebody may have resumed or moved it.
func (r *importRun) pauseOne(o *importOp) error {
	at := timerRef{r.head.Topic, o.id}
	if o.there {
		t, err := answerOf[shownTimer](r.ctl.do(client.Request{Method: http.MethodGet, Path: at.path()}))
		if err != nil || t.DueMs != o.farMs {
			return err
		}
	}
	_, err := r.ctl.do(client.Request{Method: http.MethodPost, Path: at.path("pause")})
	if err == nil {
		_, err = r.ctl.do(client.Request{Method: http.MethodPatch, Path: at.path(), Body: o.then})
	}
	return err
}

// withoutHidden is a callback without the headers whose values are not shown.
func withoutHidden(callback json.RawMessage) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	var headers map[string]string
	if err := json.Unmarshal(callback, &fields); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(fields["headers"], &headers); err != nil {
		return nil, err
	}
	for name, value := range headers {
		if value == hiddenValue {
			delete(headers, name)
		}
	}
	fields["headers"] = plain(headers)
	return plain(fields), nil
}

// send has the batch done, and again the adds that were not made for a while: to repeat these adds
// is safe.
func (r *importRun) send() error {
	for try := 0; len(r.ops) > 0; try++ {
		before := len(r.ops)
		wait, err := r.once()
		if len(r.ops) < before {
			try = 0
		}
		if err != nil && (wait == 0 || try >= importTries) {
			return fmt.Errorf("%w; what was imported is there: the same import continues from it", err)
		}
		<-time.After(wait << min(try, 5))
	}
	r.bytes = 0
	return r.pause()
}

// once sends the batch. After an error, wait is the pause before the rest is sent again; 0: never.
func (r *importRun) once() (wait time.Duration, err error) {
	ops := make([][]byte, len(r.ops))
	for i := range r.ops {
		ops[i] = r.ops[i].body
	}
	o := &object{}
	o.raw("ops", jsonList(ops))
	request := client.Request{
		Method: http.MethodPost, Path: client.Path("topics", r.head.Topic, "batch"), Query: url.Values{"brief": {"true"}}, Body: o.bytes(),
	}
	body, err := within(r.ctl, true, func(ctx context.Context) ([]byte, error) {
		body, err := r.ctl.client.Do(ctx, request)
		if p, ok := errors.AsType[*client.Problem](err); ok && p.Retryable {
			wait = cmp.Or(p.RetryAfter, importPause)
		}
		return body, err
	})
	if err != nil {
		return wait, err
	}
	var answer struct {
		Results []client.Result `json:"results"`
	}
	if err := readAnswer(body, &answer); err != nil {
		return 0, err
	}
	if len(answer.Results) != len(r.ops) {
		return 0, fmt.Errorf("%d results of %d adds (is --url right?)", len(answer.Results), len(r.ops))
	}
	return r.took(answer.Results)
}

// took counts results. Adds that may be made later stay to be sent.
func (r *importRun) took(results []client.Result) (wait time.Duration, err error) {
	var later []importOp
	var last *client.Problem
	for i := range results {
		o, p := &r.ops[i], results[i].Problem
		switch {
		case p == nil:
			if results[i].LateByMs > 0 {
				r.late++
			}
			if o.there = results[i].Status != http.StatusCreated; o.there {
				r.there++
			} else {
				r.added++
			}
			if o.then != nil {
				r.hold = append(r.hold, *o)
			}
		case p.Retryable:
			later, last = append(later, *o), p
		case p.Code == client.ErrExists:
			others, err := r.others(o)
			if err != nil {
				return 0, err
			}
			if len(others) == 0 {
				r.there++
			} else {
				r.refuse(o.id, p, "; the file has another "+strings.Join(others, ", "))
			}
		default:
			r.refuse(o.id, p, "")
		}
	}
	r.ops = later
	if last != nil {
		return importPause, errors.New(refusal(last))
	}
	return 0, nil
}

// others names the fields in which an add differs from the timer that has its id. None: that timer
// is the one of the file, even if another request made it, with a delay for example. Whether it is
// paused does not count, nor how far a series has come.
func (r *importRun) others(o *importOp) ([]string, error) {
	t, err := answerOf[shownTimer](r.ctl.do(client.Request{Method: http.MethodGet, Path: timerRef{r.head.Topic, o.id}.path()}))
	if errors.Is(err, client.ErrUnknownTimer) {
		return []string{"life: it is gone by now, import again"}, nil
	}
	if err != nil {
		return nil, err
	}
	if t.Paused = false; membersOf(r.head.Policy)["per_key"] == nil {
		t.Weight = 0 // as export has it
	}
	if hidesHeader(t.Callback) {
		if t.Callback, err = withoutHidden(t.Callback); err != nil {
			return nil, err
		}
	}
	has, there := membersOf(o.body), membersOf(t.add())
	if o.then != nil {
		delete(has, "at_ms")
		maps.Copy(has, membersOf(o.then))
	}
	goesOn := has["repeat"] != nil && same(has["repeat"], there["repeat"])
	dueMs := dueOf(has)
	for _, name := range []string{"op", "merge", "if_late", "at", "at_ms", "at_local", "zone"} {
		delete(has, name)
		delete(there, name)
	}
	names := map[string]bool{"time": dueMs != t.DueMs && (!goesOn || dueMs > t.DueMs)}
	for name := range has {
		names[name] = !bytes.Equal(has[name], there[name]) && (name == "payload" || !same(has[name], there[name]))
	}
	for name := range there {
		names[name] = names[name] || has[name] == nil
	}
	maps.DeleteFunc(names, func(_ string, differs bool) bool { return !differs })
	return slices.Sorted(maps.Keys(names)), nil
}

// dueOf is the time of an add in Unix ms; -1 if it is a local one.
func dueOf(add map[string]json.RawMessage) int64 {
	var at struct {
		At   time.Time `json:"at"`
		AtMs *int64    `json:"at_ms"`
	}
	switch err := json.Unmarshal(plain(add), &at); {
	case err != nil || at.AtMs == nil && at.At.IsZero():
		return -1
	case at.AtMs != nil:
		return *at.AtMs
	}
	return at.At.Add(time.Millisecond - 1).UnixMilli() // finer ones are rounded up
}

func (r *importRun) refuse(id string, p *client.Problem, why string) {
	switch r.refused++; {
	case r.refused <= importSaid:
		fmt.Fprintf(r.term.Err, "carillon: %s/%s: %s\n", r.head.Topic, id, refusal(p)+why)
	case r.refused == importSaid+1:
		fmt.Fprintln(r.term.Err, "carillon: there are more that are refused")
	}
}
