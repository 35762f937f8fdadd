// Package strictjson reads JSON documents in one pass, without a tree and without reflection. It takes RFC 8259 and
// nothing else, bounds the nesting, and copies nothing that it can point to. Beside encoding/json it refuses what two
// readers could understand differently: text that is not UTF-8, half a surrogate pair, and a number of the wrong
// spelling. That a field is not given twice is for the caller to see, who knows its names.
//
// The caller drives a Scanner, field by field:
//
//	for n := s.Open('{', "body"); s.More(n, '}'); n++ {
//		switch string(s.Key()) {
//		case "id":
//			id = s.Text("id")
//		…
//		}
//	}
//	s.End()
//	if s.Err() != nil …
//
// Not here: which fields there are, and what their values may be.
package strictjson
