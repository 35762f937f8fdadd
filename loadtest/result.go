package loadtest

import "github.com/tidwall/gjson"

// result is how one operation of a call ended.
type result struct {
	status  int // 0 = no answer
	outcome string
	id      string // of a batch's element, "" if it names none
	answer  []byte // for showing a person the answer
}

// outcomeOf reads the outcome field of an object, such as the answer to a cancel.
func outcomeOf(body []byte) string { return gjson.GetBytes(body, "outcome").Str }

// scanResults reads {"results":[{"status":201,…},…]} and calls yield for each element in order,
// with the outcome of its error where it has none itself. It returns how many there are; malformed
// JSON has none.
func scanResults(body []byte, yield func(index int, r result)) (found int) {
	if !gjson.ValidBytes(body) {
		return 0
	}
	gjson.GetBytes(body, "results").ForEach(func(_, one gjson.Result) bool {
		r := result{status: int(one.Get("status").Int()), id: one.Get("id").Str, outcome: one.Get("outcome").Str}
		if r.outcome == "" {
			r.outcome = one.Get("error.outcome").Str
		}
		yield(found, r)
		found++
		return true
	})
	return found
}
