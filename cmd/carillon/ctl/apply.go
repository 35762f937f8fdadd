package ctl

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
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

// step is what is done with one topic: create, change, leave, delete, or keep: it is to be pruned
// and is not empty.
type step struct {
	Topic   string               `json:"topic"`
	Action  string               `json:"action"`
	Changes []topics.FieldChange `json:"changes,omitempty"`
	Note    string               `json:"note,omitempty"`
	Error   string               `json:"error,omitempty"` // it was not done, and why

	request client.Request // zero where nothing changes
	body    fields         // of request
}

// plannedTopic is the answer to a change of a topic, or to its dry run.
type plannedTopic struct {
	Topic      string               `json:"topic"`
	Action     string               `json:"action"`
	Changes    []topics.FieldChange `json:"changes"`
	WithoutURL int64                `json:"without_url"`
	FormerIDs  int64                `json:"former_ids"`
}

// warning names the pending timers that the change affects, by number; "": none.
func (p *plannedTopic) warning() string {
	if p.WithoutURL+p.FormerIDs == 0 {
		return ""
	}
	return fmt.Sprintf("pending timers without a URL: %d, with ids of the former key: %d", p.WithoutURL, p.FormerIDs)
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
	var mayNot error
	if a.DryRun && slices.ContainsFunc(steps, func(s step) bool { return s.request.Method != "" }) {
		mayNot = ctl.mayChangeTopics()
	}
	refused := false
	if mayNot == nil {
		refused = rehearse(ctl, steps)
	}
	counts := map[string]int{}
	undone, stopped := 0, refused
	for i := range steps {
		s := &steps[i]
		switch {
		case a.DryRun || s.request.Method == "" || s.Error != "":
		case stopped:
			s.Error = "not tried"
		default:
			stopped = s.send(ctl, s.request)
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
		rest := "what was done stays, and the same command does the rest"
		if refused {
			rest = "nothing was changed"
		}
		return fmt.Errorf("not done: %d of the changes; %s", undone, rest)
	}
	return cmp.Or(err, mayNot)
}

// rehearse asks for a dry run of each change, so that none is made where one is refused. What
// waits for another topic of the file was looked at by checkOutcomes. Deletions have no dry run.
func rehearse(ctl *Command, steps []step) (refused bool) {
	made := map[string]bool{}
	for i := range steps {
		s := &steps[i]
		made[s.Topic] = s.Action == "create"
		body := maps.Clone(s.body)
		for _, field := range outcomeFields {
			if made[outcomeTopic(body[field])] {
				delete(body, field)
			}
		}
		if s.request.Method == "" || s.Action == "delete" || s.Action == "change" && len(body) == 0 {
			continue
		}
		r := s.request
		r.Query, r.Body = maps.Clone(r.Query), plain(body)
		r.Query.Set("dry_run", "true")
		stopped := s.send(ctl, r)
		if refused = refused || s.Error != ""; stopped {
			break
		}
	}
	return refused
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

// send makes the change, or its dry run. stop reports that no node has answered.
func (s *step) send(ctl *Command, r client.Request) (stop bool) {
	body, err := ctl.do(r)
	p, refused := errors.AsType[*client.Problem](err)
	switch {
	case err == nil:
		var answer plannedTopic
		_ = json.Unmarshal(body, &answer)
		s.Note = answer.warning()
	case refused && s.Action == "delete" && p.Status == http.StatusNotFound:
		s.Note = "somebody else deleted it meanwhile"
	case refused && p.Code == client.ErrNotEmpty:
		s.Action, s.Note = "keep", "it is not empty any more"
	case refused && s.Action == "delete" && p.Code == client.ErrInUse:
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
		row, err := ctl.findTopic(t.name)
		_, refused := errors.AsType[*client.Problem](err)
		s := a.step(t.name, "create", http.MethodPut, t.policy, "")
		switch {
		case err == nil && row != nil:
			s, err = a.compare(t, row)
		case err == nil:
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
	for _, field := range outcomeFields {
		to := t.outcomeTopic(field)
		stays := s.Action != "create" && !slices.ContainsFunc(s.Changes, func(c topics.FieldChange) bool { return strings.HasPrefix(c.Field, field) })
		if to == "" || stays {
			continue
		}
		isSerial, sent := serial[to]
		if !sent {
			row, err := ctl.findTopic(to)
			switch {
			case err != nil || row != nil:
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

func (a *applyCmd) step(topic, action, method string, body fields, version string) step {
	guard := topicCondition{IfMatch: version, Force: a.Force && action == "change"}
	s := step{Topic: topic, Action: action, body: body, request: guard.request(method, topic, nil)}
	if body != nil {
		s.request.Body = plain(body)
	}
	s.request.CreateOnly = action == "create"
	return s
}

// compare plans for a topic that is there.
func (a *applyCmd) compare(t *topicInFile, row *topicRow) (step, error) {
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
	patch, changes := patchTo(have, want, t.policy)
	if len(patch) == 0 && row.AutoCreated {
		// A topic of a file does not go when it is idle: any change makes it one that somebody
		// made.
		patch = fields{"delivery": want["delivery"]}
		changes = []topics.FieldChange{{Field: "auto_created", From: plain(true), To: plain(false)}}
	}
	if len(patch) == 0 {
		return step{Topic: t.name, Action: "leave"}, nil
	}
	s := a.step(t.name, "change", http.MethodPatch, patch, row.Version)
	s.Changes = changes
	return s, nil
}

// patchTo is the patch that turns a policy that is shown as have into one that is shown as want,
// and its changes one by one. file has the values to send; what it lacks goes back to the default.
func patchTo(have, want, file fields) (patch fields, changes []topics.FieldChange) {
	changes = topics.Changes(plain(have), plain(want))
	// A credential is shown as REDACTED: it may be another than the one in the file.
	const headers = "callback.headers"
	given, shown := membersOf(file["callback"])["headers"], membersOf(want["callback"])["headers"]
	if given != nil && !same(given, shown) && !slices.ContainsFunc(changes, func(c topics.FieldChange) bool { return c.Field == headers }) {
		changes = append(changes, topics.FieldChange{Field: headers, From: shown, To: shown})
		slices.SortFunc(changes, func(a, b topics.FieldChange) int { return cmp.Compare(a.Field, b.Field) })
	}
	patch = fields{}
	for _, c := range changes {
		name, member, nested := strings.Cut(c.Field, ".")
		value := file[name]
		if nested {
			inner := membersOf(patch[name])
			inner[member] = membersOf(value)[member] // nil, which is null, where there is none
			value = plain(inner)
		}
		patch[name] = value
	}
	return patch, changes
}

// membersOf reads an object; anything else has no members.
func membersOf(object []byte) fields { return topics.MembersOf(object) }

func same(a, b []byte) bool { return topics.Same(a, b) }
