package ctl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"carillon/cmd/carillon/terminal"
)

// object is a JSON object in the making. Values that are JSON already keep their bytes, whitespace
// and number spellings included, which encoding/json would not; so the payload arrives as it was
// typed.
type object struct{ buf bytes.Buffer }

// raw sets a member unless there is none.
func (o *object) raw(key string, value []byte) {
	if value == nil {
		return
	}
	if o.buf.Len() > 0 {
		o.buf.WriteByte(',')
	}
	o.buf.Write(plain(key))
	o.buf.WriteByte(':')
	o.buf.Write(value)
}

func (o *object) set(key string, value any) { o.raw(key, plain(value)) }

// text sets a member unless it is empty.
func (o *object) text(key, value string) {
	if value != "" {
		o.set(key, value)
	}
}

// number sets a member unless it is 0.
func (o *object) number(key string, value int64) {
	if value != 0 {
		o.set(key, value)
	}
}

func (o *object) empty() bool { return o.buf.Len() == 0 }

func (o *object) bytes() []byte { return []byte("{" + o.buf.String() + "}") }

// plain encodes a string, number, bool, or a list or map of them, without escaping <, > and &.
func plain(value any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		panic(fmt.Sprintf("encode %T: %v", value, err)) // only plain values come here
	}
	return bytes.TrimRight(buf.Bytes(), "\n")
}

// maxInputBytes is the API's own limit on one request's body.
const maxInputBytes = 1 << 20

// readJSON takes JSON from a flag's value: itself, @file, or - for stdin.
func readJSON(flag, value string, stdin io.Reader) ([]byte, error) {
	data, err := readValue(value, stdin)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	if !json.Valid(data) {
		hint := ""
		if !strings.HasPrefix(value, "@") && value != "-" {
			hint = `; a text needs its quotes: '"hello"', a file a leading @`
		}
		return nil, terminal.Usagef("--%s: this is not JSON%s", flag, hint)
	}
	return data, nil
}

func readValue(value string, stdin io.Reader) ([]byte, error) {
	source := stdin
	if name, ok := strings.CutPrefix(value, "@"); ok {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		source = f
	} else if value != "-" {
		return []byte(value), nil
	}
	data, err := io.ReadAll(io.LimitReader(source, maxInputBytes+1))
	if err == nil && len(data) > maxInputBytes {
		err = errors.New("more than 1 MiB, which no node takes")
	}
	return data, err
}

// repeatFields make a timer a series. The node checks them; here they are only spelled.
type repeatFields struct {
	Cron    string `json:"cron,omitempty" xor:"repeat" placeholder:"'M H DOM MON DOW'" help:"Repeat at these times; needs no other time."`
	Zone    string `json:"zone,omitempty" placeholder:"Europe/Berlin" help:"Whose clocks, with --cron or --at-local."`
	Every   string `json:"every,omitempty" xor:"repeat" placeholder:"1h" help:"Repeat each 1h, from the time or 1h from now."`
	Until   string `json:"until,omitempty" placeholder:"TIME" help:"Of a series: no occurrence is due later."`
	Count   *int   `json:"count,omitempty" placeholder:"N" help:"Of a series: how many occurrences in all."`
	CatchUp string `json:"catch_up,omitempty" placeholder:"one|skip|all" help:"Of a series: what to make up for."`
	Overlap bool   `json:"overlap,omitempty" help:"Of a series: do not wait for the last one's end."`
}

func (r *repeatFields) write(o *object) error {
	if *r == (repeatFields{}) {
		return nil
	}
	if r.Cron == "" && r.Every == "" {
		return terminal.Usagef("--zone, --until, --count, --catch-up and --overlap go with --cron or --every")
	}
	o.set("repeat", r)
	return nil
}
