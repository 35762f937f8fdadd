package web

import (
	"slices"
	"strings"
)

// Fields is a set of fields of a timer as a client writes it. The bits go into content hashes,
// which are stored: new ones are added at the end.
type Fields uint64

// Object reads an object of members with these names, each at most once; read takes the value of
// the i-th. It returns which were given, as bits. In faults its own name stands before theirs.
func (r *Reader) Object(what string, names []string, read func(i int)) (given Fields) {
	for n := r.Open('{', what); r.More(n, '}'); n++ {
		name := r.Key()
		if r.Err() != nil {
			break
		}
		i := slices.Index(names, string(name))
		if i < 0 {
			r.Reject(Unknown(name, names))
			break
		}
		if !r.First(&given, 1<<i, what, name) {
			break
		}
		read(i)
	}
	return given
}

// Body is Object for the whole document.
func (r *Reader) Body(names []string, read func(name string)) (given Fields) {
	given = r.Object("body", names, func(i int) { read(names[i]) })
	r.End()
	return given
}

// First marks a field of an object as given; false (and a fault) when it was given before.
func (r *Reader) First(set *Fields, f Fields, object string, name []byte) bool {
	if *set&f != 0 {
		r.Reject(Badf(BadJSON, "%s: given twice", strings.TrimPrefix(object+"."+Clip(name), "body.")))
		return false
	}
	*set |= f
	return true
}

// Unknown is the fault of a field that there is none of, with a hint when only its case is wrong,
// or when it belongs into another field.
func Unknown(name []byte, names []string) *Problem {
	for _, n := range names {
		if strings.EqualFold(n, string(name)) {
			return Badf(UnknownField, "unknown field %q: it is written %q", Clip(name), n)
		}
		if outer, inner, nested := strings.Cut(n, "."); nested && inner == string(name) {
			return Badf(UnknownField, `unknown field %q: it is %s, as in {%q: {%q: …}}`, inner, n, outer, inner)
		}
	}
	return Badf(UnknownField, "unknown field %q", Clip(name))
}
