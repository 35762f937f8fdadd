package ring

import (
	"reflect"
	"strings"
	"testing"

	"carillon/timer"
)

// fill gives everything in v a value, one element to each list.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	default:
		alter(v)
	}
}

func alter(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(v.Uint() + 1)
	case reflect.Float64:
		v.SetFloat(v.Float() + 1)
	default:
		panic("a kind of field that nothing saved had before: " + v.Kind().String())
	}
}

// each calls visit with every value in v that holds no others, and with every list.
func each(v reflect.Value, path string, visit func(path string, v reflect.Value)) {
	switch v.Kind() {
	case reflect.Pointer:
		each(v.Elem(), path, visit)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.Tag.Get("json") != "-" {
				each(v.Field(i), path+"."+f.Name, visit)
			}
		}
	case reflect.Slice:
		visit(path, v)
		each(v.Index(0), path+"[]", visit)
	default:
		visit(path, v)
	}
}

// savedWhole is all that a snapshot has.
type savedWhole struct {
	LastID  timer.TopicID
	Topics  []*timer.Topic
	Cluster *savedCluster
	Nodes   []Node
	Rows    []Assignment
}

// stateOf is a State that holds just the saved values.
func stateOf(saved *savedWhole) *State {
	s := NewState(nil, nil)
	c := saved.Cluster
	s.Topics.replace(newTopicSet(saved.LastID, saved.Topics))
	s.cluster = cluster{id: c.ID, shards: c.Shards, replicas: c.Replicas, level: c.Level, version: c.Version, nodes: map[uint64]Node{}, rows: saved.Rows, secret: c.Secret,
		founded: c.Founded, growth: *c.Growth}
	for _, n := range saved.Nodes {
		s.cluster.nodes[n.ID] = n
	}
	s.cluster.list()
	return s
}

// Every field of a snapshot is in the hash, today's fields and tomorrow's.
func TestHashIsOfAllThatIsSaved(t *testing.T) {
	var saved savedWhole
	fill(reflect.ValueOf(&saved).Elem())
	saved.Topics[0].ID = timer.TopicID(7)
	whole := func(s *State) string { // without the hash itself
		text := string(s.Save())
		return text[:strings.LastIndex(text, `{"end"`)]
	}
	base, text := stateOf(&saved).Hash(), whole(stateOf(&saved))
	fields := 0
	each(reflect.ValueOf(&saved).Elem(), "", func(path string, v reflect.Value) {
		fields++
		old := reflect.New(v.Type()).Elem()
		old.Set(v)
		if v.Kind() == reflect.Slice {
			v.SetZero()
		} else {
			alter(v)
		}
		s := stateOf(&saved)
		if whole(s) == text {
			t.Errorf("%s: the test changes nothing that is saved", path)
		}
		if s.Hash() == base {
			t.Errorf("%s is not in the hash", path)
		}
		v.Set(old)
	})
	if got := stateOf(&saved).Hash(); got != base || fields < 60 {
		t.Errorf("hash %016x, then %016x; %d fields", base, got, fields)
	}
}
