// Package strictjson reads JSON documents in one pass, without a tree and without reflection. It
// takes RFC 8259 and nothing else, bounds the nesting, and copies nothing that it can point to.
// More than encoding/json, it refuses values that two readers could understand differently: text
// that is not UTF-8, half a surrogate pair, and a number of the wrong spelling. The caller, which
// knows the names of the fields, sees to it that none is given twice.
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
// Not here: which fields there are, and which values they may have.
package strictjson
