package web

import (
	"math"
	"strconv"
	"unicode/utf8"
)

// Object and Array append JSON to B, with the commas where they belong: each method one member.
type Object struct {
	B     []byte
	Begun bool // B has members already
}

// Name begins a member, whose value is to be appended to B.
func (o *Object) Name(name string) {
	c := byte('{')
	if o.Begun {
		c = ','
	}
	o.Begun = true
	o.B = append(append(append(o.B, c, '"'), name...), '"', ':')
}

func (o *Object) Text(name, v string) {
	o.Name(name)
	o.B = AppendString(o.B, v)
}

func (o *Object) Integer(name string, v int64) {
	o.Name(name)
	o.B = strconv.AppendInt(o.B, v, 10)
}

func (o *Object) Float(name string, v float64) {
	o.Name(name)
	o.B = strconv.AppendFloat(o.B, v, 'g', -1, 64)
}

func (o *Object) Boolean(name string, v bool) {
	o.Name(name)
	o.B = strconv.AppendBool(o.B, v)
}

func (o *Object) Span(name string, ms int64) {
	o.Name(name)
	o.B = append(AppendSpan(append(o.B, '"'), ms), '"')
}

// End is the whole object.
func (o *Object) End() []byte {
	if !o.Begun {
		o.B = append(o.B, '{')
	}
	return append(o.B, '}')
}

// Array appends a JSON array to B.
type Array struct {
	B     []byte
	begun bool
}

// Next goes before each element.
func (a *Array) Next() {
	c := byte('[')
	if a.begun {
		c = ','
	}
	a.begun = true
	a.B = append(a.B, c)
}

// End is the whole array.
func (a *Array) End() []byte {
	if !a.begun {
		a.B = append(a.B, '[')
	}
	return append(a.B, ']')
}

// List writes an array of n elements; element appends the i-th.
func (o *Object) List(name string, n int, element func(b []byte, i int) []byte) {
	o.Page(name, n, math.MaxInt, element)
}

// Page is List that ends where B has grown beyond so many bytes. It returns how many were written.
func (o *Object) Page(name string, n, most int, element func(b []byte, i int) []byte) (written int) {
	o.Name(name)
	a := Array{B: o.B}
	for ; written < n && (written == 0 || len(a.B) <= most); written++ {
		a.Next()
		a.B = element(a.B, written)
	}
	o.B = a.End()
	return written
}

func (o *Object) Nest(name string, write func(*Object)) {
	o.Name(name)
	inner := Object{B: o.B}
	write(&inner)
	o.B = inner.End()
}

// Objects writes an array of n objects.
func (o *Object) Objects(name string, n int, write func(o *Object, i int)) {
	o.List(name, n, func(b []byte, i int) []byte {
		inner := Object{B: b}
		write(&inner, i)
		return inner.End()
	})
}

func (o *Object) Texts(name string, list []string) {
	o.List(name, len(list), func(b []byte, i int) []byte { return AppendString(b, list[i]) })
}

func (o *Object) Integers(name string, list []int64) {
	o.List(name, len(list), func(b []byte, i int) []byte { return strconv.AppendInt(b, list[i], 10) })
}

// OptText, OptInteger, OptBoolean, OptSpan, OptTime and OptTexts write a member that has a value:
// it is not empty, over 0 (a time: not 0), or true.
func (o *Object) OptText(name, v string) {
	if v != "" {
		o.Text(name, v)
	}
}

func (o *Object) OptInteger(name string, v int64) {
	if v > 0 {
		o.Integer(name, v)
	}
}

func (o *Object) OptBoolean(name string, v bool) {
	if v {
		o.Boolean(name, v)
	}
}

func (o *Object) OptSpan(name string, ms int64) {
	if ms > 0 {
		o.Span(name, ms)
	}
}

func (o *Object) OptTime(name string, ms int64) {
	if ms != 0 {
		o.B = AppendTime(o.B, name, ms)
	}
}

func (o *Object) OptTexts(name string, list []string) {
	if len(list) > 0 {
		o.Texts(name, list)
	}
}

// AppendString writes a JSON string. Bytes that are not UTF-8 (a receiver's error text can be
// anything) become U+FFFD.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r != utf8.RuneError || size != 1 {
				i += size
				continue
			}
		}
		b = append(b, s[from:i]...)
		switch {
		case c >= utf8.RuneSelf:
			b = append(b, `\ufffd`...)
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, `\n`...)
		default:
			b = append(b, `\u00`...)
			b = append(b, "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
		}
		i++
		from = i
	}
	return append(append(b, s[from:]...), '"')
}
