package ctl

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"carillon/client"
	"carillon/cmd/carillon/terminal"
	"carillon/transport/api/topics"
)

type applyCmd struct {
	File   string `short:"f" required:"" placeholder:"FILE" help:"Topics and their policies, in YAML or JSON; - for stdin."`
	DryRun bool   `help:"Show the plan, and change nothing."`
	Prune  bool   `help:"Delete topics that are not in the file, if they are empty. Those that adds made stay."`
	Force  bool   `help:"Change even if pending timers are left without a URL, or receivers without the secrets that they check. It deletes nothing."`
}

func (*applyCmd) Help() string {
	return "The file is topics: {name: policy}, with the fields of topics put. A field that is left out has its default; " +
		"secrets and signing_keys alone stay as they are then. " +
		"Names, fields and values, and the topics that policies name, are checked in the whole file before anything is changed. " +
		"Addresses that nodes refuse, quotas, and what timers need are checked when a topic is sent: a refusal is of that topic alone. " +
		"Only what differs is sent, and only to the version that was compared; what somebody else makes or changes meanwhile stays."
}

func (*applyCmd) Examples() string {
	return `carillon ctl apply -f topics.yaml --dry-run
carillon ctl apply -f topics.yaml
carillon ctl apply -f topics.yaml --prune`
}

// step is what is done with one topic: create, change, leave, delete, or keep: it is to be pruned
// and is not empty.
type step struct {
	Topic   string        `json:"topic"`
	Action  string        `json:"action"`
	Changes []fieldChange `json:"changes,omitempty"`
	Note    string        `json:"note,omitempty"`
	Error   string        `json:"error,omitempty"` // it was not done, and why

	request client.Request // zero where nothing changes
}

// fieldChange has no From or To where there is no value.
type fieldChange struct {
	Field string          `json:"field"`
	From  json.RawMessage `json:"from,omitempty"`
	To    json.RawMessage `json:"to,omitempty"`
}

func (a *applyCmd) Run(ctl *Command, term *terminal.Terminal) error {
	wanted, err := readTopics(a.File, term.In)
	if err != nil {
		return err
	}
	steps, err := a.plan(ctl, namedFirst(wanted))
	if err != nil {
		return err
	}
	counts := map[string]int{}
	undone, stopped := 0, false
	for i := range steps {
		s := &steps[i]
		switch {
		case a.DryRun || s.request.Method == "":
		case stopped:
			s.Error = "not tried"
		default:
			stopped = s.run(ctl)
		}
		if s.Error != "" {
			undone++
		} else {
			counts[s.Action]++
		}
		if !ctl.JSON {
			fmt.Fprintln(term.Out, printable(s.String()))
		}
	}
	form := "%d created, %d changed, %d left, %d kept, %d deleted\n"
	if a.DryRun {
		form = "to create: %d, to change: %d, to leave: %d, to keep: %d, to delete: %d; nothing was changed\n"
	}
	if ctl.JSON {
		err = printJSON(term.Out, plain(map[string]any{"topics": steps, "dry_run": a.DryRun}))
	} else {
		_, err = fmt.Fprintf(term.Out, form, counts["create"], counts["change"], counts["leave"], counts["keep"], counts["delete"])
	}
	if undone > 0 {
		return fmt.Errorf("not done: %d of the changes; what was done stays, and the same command does the rest", undone)
	}
	if err == nil && a.DryRun && counts["create"]+counts["change"]+counts["delete"] > 0 {
		err = ctl.mayChangeTopics()
	}
	return err
}

// mayChangeTopics is the error that a change of a topic would have for want of a scope.
func (c *Command) mayChangeTopics() error {
	cluster, err := within(c, false, c.client.Cluster)
	if err == nil && cluster.Scopes != nil && !slices.Contains(cluster.Scopes, "admin") {
		return errors.New("the token may not make these changes: it lacks the scope admin")
	}
	return nil // other faults are reported by the changes
}

// String is the line of a step.
func (s *step) String() string {
	text := s.Action + " " + s.Topic
	between := "  "
	for _, c := range s.Changes {
		text += between + c.Field
		if between = ", "; same(c.From, c.To) {
			text += " sent again, since credentials are not shown"
		} else {
			text += fmt.Sprintf(" %s -> %s", cmp.Or(readableValue(c.From), "none"), cmp.Or(readableValue(c.To), "none"))
		}
	}
	if s.Note != "" {
		text += "  (" + s.Note + ")"
	}
	if s.Error != "" {
		text = "not done: " + text + ": " + s.Error
	}
	return text
}

// run makes the change. A refusal concerns one topic; stop reports that no node has answered.
func (s *step) run(ctl *Command) (stop bool) {
	body, err := ctl.do(s.request)
	p, refused := errors.AsType[*client.Problem](err)
	switch {
	case err == nil:
		var answer struct {
			WithoutURL int64 `json:"without_url"`
			FormerIDs  int64 `json:"former_ids"`
		}
		if _ = json.Unmarshal(body, &answer); answer.WithoutURL+answer.FormerIDs > 0 {
			s.Note = fmt.Sprintf("pending timers without a URL now: %d, with ids of the former key: %d", answer.WithoutURL, answer.FormerIDs)
		}
	case refused && s.Action == "delete" && p.Status == http.StatusNotFound:
		s.Note = "somebody else deleted it meanwhile"
	case refused && p.Code == client.ErrNotEmpty:
		s.Action, s.Note = "keep", "it is not empty any more"
	case refused && s.Action == "delete" && p.Code == "in_use":
		// apply has a --force too, which deletes nothing.
		s.Error = strings.Replace(err.Error(), "--force", "carillon ctl topics delete "+s.Topic+" --force", 1)
	case refused && p.Status == http.StatusPreconditionFailed:
		did := "changed"
		if s.Action == "create" {
			did = "made"
		}
		s.Error = "somebody " + did + " it meanwhile, which was not overwritten; look at it and apply again (412 version_mismatch)"
	default:
		s.Error = err.Error()
	}
	return err != nil && !refused
}

// plan compares the file with the topics that there are. Deletions come last.
func (a *applyCmd) plan(ctl *Command, wanted []topicInFile) (steps []step, err error) {
	var faults []error
	serial := map[string]bool{} // the file's topics, each after those that its policy names
	for i := range wanted {
		t := &wanted[i]
		body, err := ctl.do(client.Request{Method: http.MethodGet, Path: client.Path("topics", t.name)})
		_, refused := errors.AsType[*client.Problem](err)
		s := a.step(t.name, "create", http.MethodPut, plain(t.policy), "")
		switch {
		case err == nil:
			s, err = a.compare(t, body)
		case errors.Is(err, client.ErrUnknownTopic):
			_, err = t.shown(nil)
		case refused:
			err = t.fault(t.line, err.Error())
		default:
			return nil, err
		}
		if err == nil {
			err = s.checkOutcomes(ctl, t, wanted[i:], serial)
		}
		serial[t.name] = same(t.policy["serial"], plain(true))
		steps, faults = append(steps, s), append(faults, err)
	}
	if err := errors.Join(faults...); err != nil || !a.Prune {
		return steps, err
	}
	rows, err := ctl.topicRows("")
	for _, row := range rows {
		_, named := serial[row.Topic]
		pending, dead := row.Counts.Scheduled+row.Counts.Leased, row.Counts.Dead
		switch {
		case named || row.AutoCreated:
		case pending+dead > 0:
			steps = append(steps, step{Topic: row.Topic, Action: "keep", Note: fmt.Sprintf(
				"timers pending: %d, dead letters: %d; carillon ctl topics delete %s --force drops them, too", pending, dead, row.Topic)})
		default:
			steps = append(steps, a.step(row.Topic, "delete", http.MethodDelete, nil, row.Version))
		}
	}
	return steps, err
}

// checkOutcomes looks at the topics that s has on_done and on_dead of t name: each must be there
// when t is sent, and not be serial. serial has the topics that are sent before, later the others.
func (s *step) checkOutcomes(ctl *Command, t *topicInFile, later []topicInFile, serial map[string]bool) error {
	for _, field := range []string{"on_done", "on_dead"} {
		to := t.outcomeTopic(field)
		stays := s.Action != "create" && !slices.ContainsFunc(s.Changes, func(c fieldChange) bool { return strings.HasPrefix(c.Field, field) })
		if to == "" || stays {
			continue
		}
		isSerial, sent := serial[to]
		if !sent {
			body, err := ctl.do(client.Request{Method: http.MethodGet, Path: client.Path("topics", to)})
			var row topicRow
			switch {
			case err == nil:
				err = readAnswer(body, &row)
			case !errors.Is(err, client.ErrUnknownTopic):
			case slices.ContainsFunc(later, func(o topicInFile) bool { return o.name == to }):
				err = fmt.Errorf("it needs that topic in order to be made; make it first: carillon ctl topics put %s --policy '{}'", to)
			default:
				err = errors.New("there is no such topic, in the file or in the cluster")
			}
			if err != nil {
				return t.outcomeFault(field, err.Error())
			}
			isSerial = same(membersOf(row.Policy)["serial"], plain(true))
		}
		if isSerial {
			return t.outcomeFault(field, "the topic is serial")
		}
	}
	return nil
}

func (a *applyCmd) step(topic, action, method string, body []byte, version string) step {
	guard := topicCondition{IfMatch: version, Force: a.Force && action == "change"}
	s := step{Topic: topic, Action: action, request: guard.request(method, topic, body)}
	s.request.CreateOnly = action == "create"
	return s
}

// compare plans for a topic that is there.
func (a *applyCmd) compare(t *topicInFile, answer []byte) (step, error) {
	var row topicRow
	if err := readAnswer(answer, &row); err != nil {
		return step{}, err
	}
	want, err := t.shown(row.Policy)
	if err != nil {
		return step{}, err
	}
	have := membersOf(row.Policy)
	all := maps.Clone(have)
	maps.Copy(all, want)
	for name, value := range all {
		if t.policy[name] != nil {
			continue
		}
		_, newer := topics.PolicyAsShown(plain(fields{name: value}), row.Policy) // than this build
		older := have[name] == nil
		if newer != nil || older || name == "secrets" || name == "signing_keys" {
			delete(have, name)
			delete(want, name)
		}
	}
	patch, changes := patchTo("", have, want, t.policy)
	if len(patch) == 0 && row.AutoCreated {
		// A topic of a file does not go when it is idle: any change makes it one that somebody
		// made.
		patch = fields{"delivery": want["delivery"]}
		changes = []fieldChange{{"auto_created", plain(true), plain(false)}}
	}
	if len(patch) == 0 {
		return step{Topic: t.name, Action: "leave"}, nil
	}
	s := a.step(t.name, "change", http.MethodPatch, plain(patch), row.Version)
	s.Changes = changes
	return s, nil
}

// patchTo is the patch that turns a policy that is shown as have into one that is shown as want,
// and its changes one by one. file has the values to send; what it lacks goes back to the default.
// The members of callback, retry, rate, breaker and window change one by one.
func patchTo(path string, have, want, file fields) (patch fields, changes []fieldChange) {
	patch = fields{}
	all := maps.Clone(have)
	maps.Copy(all, want)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		from, to, given := have[name], want[name], file[name]
		// A credential is shown as REDACTED: it may be another than the one in the file.
		hidden := path+name == "callback.headers" && given != nil && !same(given, to)
		switch {
		case path == "" && isObject(from) && isObject(to):
			inner, more := patchTo(name+".", membersOf(from), membersOf(to), membersOf(given))
			if len(inner) == 0 {
				continue
			}
			patch[name] = plain(inner)
			changes = append(changes, more...)
		case same(from, to) && !hidden:
			continue
		default:
			patch[name] = given
			changes = append(changes, fieldChange{path + name, from, to})
		}
		if given == nil {
			patch[name] = []byte("null")
		}
	}
	return patch, changes
}

// membersOf reads an object; anything else has no members.
func membersOf(object []byte) fields {
	all := fields{}
	_ = json.Unmarshal(object, &all)
	return all
}

func isObject(raw []byte) bool { return bytes.HasPrefix(raw, []byte("{")) }

// same compares JSON by its meaning.
func same(a, b []byte) bool {
	var x, y any
	_, _ = json.Unmarshal(a, &x), json.Unmarshal(b, &y)
	return reflect.DeepEqual(x, y)
}
