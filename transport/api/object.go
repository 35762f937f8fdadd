package api

import "strconv"

// object and array append JSON, with the commas where they belong.
type object struct {
	b     []byte
	begun bool
}

func (o *object) name(name string) {
	c := byte('{')
	if o.begun {
		c = ','
	}
	o.begun = true
	o.b = append(append(append(o.b, c, '"'), name...), '"', ':')
}

func (o *object) str(name, v string) {
	o.name(name)
	o.b = appendString(o.b, v)
}

func (o *object) integer(name string, v int64) {
	o.name(name)
	o.b = appendInt(o.b, v)
}

func (o *object) float(name string, v float64) {
	o.name(name)
	o.b = strconv.AppendFloat(o.b, v, 'g', -1, 64)
}

func (o *object) boolean(name string, v bool) {
	o.name(name)
	o.b = strconv.AppendBool(o.b, v)
}

func (o *object) span(name string, ms int64) {
	o.name(name)
	o.b = append(appendSpan(append(o.b, '"'), ms), '"')
}

func (o *object) end() []byte {
	if !o.begun {
		o.b = append(o.b, '{')
	}
	return append(o.b, '}')
}

type array struct {
	b     []byte
	begun bool
}

// next goes before each element.
func (a *array) next() {
	c := byte('[')
	if a.begun {
		c = ','
	}
	a.begun = true
	a.b = append(a.b, c)
}

func (a *array) end() []byte {
	if !a.begun {
		a.b = append(a.b, '[')
	}
	return append(a.b, ']')
}

func appendInt(b []byte, v int64) []byte { return strconv.AppendInt(b, v, 10) }
