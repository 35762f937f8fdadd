package topics

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"carillon/timer"
	"carillon/transport/api/web"
)

// FieldChange is a field of a policy, as `callback.url`, and its values before and after. There is
// none where From or To is empty.
type FieldChange struct {
	Field string          `json:"field"`
	From  json.RawMessage `json:"from,omitempty"`
	To    json.RawMessage `json:"to,omitempty"`
}

// Changes compares two objects, such as policies that a GET shows, by the meaning of their values.
// The fields of objects in them are compared one by one. It is O(size of the objects).
func Changes(from, to []byte) []FieldChange { return changes("", MembersOf(from), MembersOf(to)) }

func changes(path string, from, to map[string]json.RawMessage) (list []FieldChange) {
	all := maps.Clone(from)
	maps.Copy(all, to)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		a, b := from[name], to[name]
		switch {
		case path == "" && bytes.HasPrefix(a, []byte("{")) && bytes.HasPrefix(b, []byte("{")):
			list = append(list, changes(name+".", MembersOf(a), MembersOf(b))...)
		case !Same(a, b):
			list = append(list, FieldChange{path + name, a, b})
		}
	}
	return list
}

// MembersOf reads an object; anything else has no members.
func MembersOf(object []byte) map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	_ = json.Unmarshal(object, &all)
	return all
}

// Same compares JSON by its meaning.
func Same(a, b []byte) bool {
	var x, y any
	_, _ = json.Unmarshal(a, &x), json.Unmarshal(b, &y)
	return reflect.DeepEqual(x, y)
}

// wouldChange answers a dry run of a change with the topic as it would be. old is the topic as it
// is, nil if there is none.
func wouldChange(rq *web.Request, old, t *timer.Topic, formerIDs int64) *web.Problem {
	o := web.Object{B: rq.Out()}
	if old == nil {
		members(&o, t, nil)
		o.Text("action", "create")
		return rq.JSON(200, o.End())
	}
	membersAfter(rq, &o, t, formerIDs)
	list := Changes(AppendPolicy(nil, &old.Policy), AppendPolicy(nil, &t.Policy))
	if !slices.Equal(old.Policy.Callback.Headers, t.Policy.Callback.Headers) && !slices.ContainsFunc(list, func(c FieldChange) bool { return c.Field == "callback.headers" }) {
		list = append(list, FieldChange{Field: "callback.headers"}) // both are shown as REDACTED
	}
	if old.AutoCreated {
		list = append(list, FieldChange{"auto_created", []byte("true"), []byte("false")})
	}
	if len(list) == 0 {
		o.Text("action", "leave")
		return rq.JSON(200, o.End())
	}
	o.Text("action", "change")
	text, err := json.Marshal(list)
	if err != nil {
		return web.Fault(err)
	}
	o.Name("changes")
	o.B = append(o.B, text...)
	return rq.JSON(200, o.End())
}
