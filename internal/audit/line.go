package audit

import (
	"encoding/json"
	"strconv"
	"time"
)

func appendEntry(b []byte, at time.Time, e *Entry) []byte {
	b = at.UTC().AppendFormat(append(b, `{"time":"`...), "2006-01-02T15:04:05.000Z")
	b = append(b, `","who":`...)
	b = appendString(b, e.Who)
	b = append(b, `,"what":`...)
	b = appendString(b, e.What)
	b = append(b, `,"object":`...)
	b = appendString(b, e.Object)
	b = append(b, `,"from":`...)
	b = appendString(b, e.From)
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(e.Status), 10)
	if e.Count != 0 {
		b = append(b, `,"count":`...)
		b = strconv.AppendInt(b, int64(e.Count), 10)
	}
	if e.Refused != 0 {
		b = append(b, `,"refused":`...)
		b = strconv.AppendInt(b, int64(e.Refused), 10)
	}
	return append(b, '}', '\n')
}

// appendString appends a JSON string; few strings need escapes.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(s) // a string cannot fail
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
