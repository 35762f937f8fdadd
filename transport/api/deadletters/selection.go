package deadletters

import (
	"slices"

	"carillon/timer"
	"carillon/transport/api/spec"
	"carillon/transport/api/timers"
	"carillon/transport/api/web"
)

func deadQuery() *timer.Query {
	return &timer.Query{States: 1 << timer.Dead, ByEnd: true}
}

// selection names the timers of a redrive or purge, and the action.
type selection struct {
	names   []string // ids or uids
	byUID   bool
	query   *timer.Query // nil when names are given
	delayMs int64
	// callback is the patch of a redrive; nil when none is given.
	callback *timer.Patch
	// needsURL: of a redrive that gives no URL, in a topic that has none. Dead letters without a
	// URL of their own are skipped.
	needsURL bool
}

var selectionFieldNames = []string{"ids", "uids", "filter", "all", "delay", "callback"}

// readSelection reads the body of a redrive (with delay and callback) or a purge.
func readSelection(r *web.Reader, redrive bool, maxIDs int) *selection {
	sel := &selection{}
	names := selectionFieldNames
	if !redrive {
		names = names[:4]
	}
	filtered, all := false, false
	given := r.Body(names, func(name string) {
		switch name {
		case "ids":
			sel.names = readNames(r, "ids", maxIDs, web.ValidID, timers.IDRule)
		case "uids":
			sel.names, sel.byUID = readNames(r, "uids", maxIDs, validUID, "is a uid as answers show it"), true
		case "filter":
			sel.query = deadQuery()
			filtered = timers.ReadFilter(r, sel.query, []string{"reason", "from", "to", "label"})
		case "all":
			all = r.Boolean("all")
		case "delay":
			sel.delayMs = r.Delay()
		case "callback":
			var s timer.Spec
			var given, null web.Fields
			if spec.ReadCallback(r, &s.Callback, &given, &null); null != 0 {
				r.Reject(web.Badf(web.BadRequest, "%s: must not be null", spec.NameOf(null)))
			}
			sel.callback = spec.PatchOf(s, given)
		}
	})
	const gIDs, gUIDs, gFilter = 1, 2, 4
	named := given & (gIDs | gUIDs)
	switch {
	case r.Err() != nil:
		return nil
	case named != 0 && (given&gFilter != 0 || all) || named == gIDs|gUIDs:
		r.Reject(web.Bad(web.BadRequest, "give ids, or uids, or a filter, or all, not several"))
	case named == 0 && !filtered && !all:
		r.Reject(web.Bad(web.BadRequest, `give ids, or uids, or a filter that is not empty, or "all": true`))
	case named == 0 && sel.query == nil:
		sel.query = deadQuery()
	}
	return sel
}

// readNames reads a list of ids or of uids, each once.
func readNames(r *web.Reader, field string, most int, valid func(string) bool, rule string) []string {
	seen := map[string]bool{}
	list := r.Texts(field, func(n int, name string) *web.Problem {
		switch {
		case !valid(name):
			return web.Badf(web.BadName, "%s: each %s", field, rule)
		case n == most:
			return web.Failf(413, web.TooLarge, "%s: more than %d", field, most)
		}
		return nil
	})
	return slices.DeleteFunc(list, func(name string) bool {
		twice := seen[name]
		seen[name] = true
		return twice
	})
}

func validUID(s string) bool {
	_, _, _, ok := timer.ParseUID(s)
	return ok
}

// field is the member of an answer that a name of the selection goes to.
func (s *selection) field() string {
	if s.byUID {
		return "uid"
	}
	return "id"
}
