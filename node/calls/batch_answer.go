package calls

import (
	"encoding/json"
	"errors"
	"strings"

	"carillon/internal/delivery"
	"carillon/transport/callback"
)

// outcomesOf is how each timer's attempt ended, by how the call did, and by what its answer names.
// texts: the answer's own texts are kept. unknown counts what it names as failed that is no timer
// of the call: a receiver that means something else by it takes failures for done.
func outcomesOf(out *callback.Outcome, ids []string, texts bool) (list []delivery.Outcome, unknown int) {
	list = repeated(out.Outcome, len(ids))
	if len(out.Body) == 0 || out.Err != "" {
		return list, 0
	}
	var answer struct {
		Failed []struct {
			WebhookID string `json:"webhook_id"`
			Error     string `json:"error"`
		} `json:"failed"`
	}
	// What is no such answer names nobody; of one in which some entries are none, the others count.
	if err := json.Unmarshal(out.Body, &answer); err != nil && len(answer.Failed) == 0 {
		if form, is := errors.AsType[*json.UnmarshalTypeError](err); is && strings.HasPrefix(form.Field, "failed") {
			unknown++
		}
		return list, unknown
	}
	if len(answer.Failed) == 0 {
		return list, 0
	}
	at := make(map[string]int, len(ids))
	for i, id := range ids {
		at[id] = i
	}
	for _, f := range answer.Failed {
		i, ok := at[f.WebhookID]
		if !ok {
			unknown++
		} else {
			list[i].Err = failedText("")
			if texts {
				list[i].Err = failedText(f.Error)
			}
		}
	}
	return list, unknown
}

// failedText is the error of a timer that the answer of its call names. It begins with a code of
// ours, so that no receiver's text is taken for another one.
func failedText(given string) string {
	const code, most = "failed", 256
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, given[:min(len(given), most)])
	if clean = strings.TrimSpace(strings.ToValidUTF8(clean, "")); clean == "" {
		return code
	}
	text := code + ": " + clean
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}
