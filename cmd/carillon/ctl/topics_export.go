package ctl

import (
	"bytes"
	"encoding/json"
	"fmt"

	"go.yaml.in/yaml/v3"

	"carillon/client"
	"carillon/cmd/carillon/terminal"
)

type topicsExportCmd struct {
	Prefix string `placeholder:"TEXT" help:"Only topics whose names begin with this."`
}

func (e *topicsExportCmd) Run(ctl *Command, term *terminal.Terminal) error {
	rows, err := ctl.topicRows(e.Prefix)
	if err != nil {
		return err
	}
	byDefault, err := (&topicInFile{policy: fields{}}).shown(nil)
	if err != nil {
		return err
	}
	topics := fields{}
	for _, row := range rows {
		if !row.AutoCreated {
			policy := membersOf(row.Policy)
			delete(policy, "secrets")
			delete(policy, "signing_keys")
			topics[row.Topic] = plain(beyond(policy, byDefault))
		}
	}
	file := plain(fields{"topics": plain(topics)})
	if ctl.JSON {
		return printJSON(term.Out, file)
	}
	var doc any
	if err := yaml.Unmarshal(file, &doc); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	enc := yaml.NewEncoder(term.Out)
	enc.SetIndent(2)
	return enc.Encode(doc)
}

func beyond(policy, byDefault fields) fields {
	left := fields{}
	for name, value := range policy {
		switch {
		case same(value, byDefault[name]):
		case isObject(value) && isObject(byDefault[name]):
			left[name] = plain(beyond(membersOf(value), membersOf(byDefault[name])))
		default:
			left[name] = value
		}
	}
	return left
}

func isObject(raw []byte) bool { return bytes.HasPrefix(raw, []byte("{")) }

// topicRow is a topic as a node shows it.
type topicRow struct {
	Topic       string             `json:"topic"`
	Version     string             `json:"version"`
	Policy      json.RawMessage    `json:"policy"`
	Paused      bool               `json:"paused"`
	AutoCreated bool               `json:"auto_created"`
	Counts      client.TopicCounts `json:"counts"`
}

// topicRows are all topics that the token sees: O(topics) in memory.
func (c *Command) topicRows(prefix string) (all []topicRow, err error) {
	l := listing{path: client.Path("topics"), query: queryOf("counts", "true", "prefix", prefix), member: "topics"}
	err = c.allPages(l, func(page []json.RawMessage) error {
		for _, raw := range page {
			var row topicRow
			if err := readAnswer(raw, &row); err != nil {
				return err
			}
			all = append(all, row)
		}
		return nil
	})
	return all, err
}
