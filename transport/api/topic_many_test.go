package api

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"carillon/timer"
	"carillon/transport/api/backend"
	"carillon/transport/api/web"
)

// manyTopics is an engine with as many topics as a cluster may have, in order of name.
type manyTopics struct {
	fakeTopics
	topics []*timer.Topic
}

func (m *manyTopics) Core() (*backend.Core, error) { return m.with(m.fakeEngine, m) }

func (m *manyTopics) at(name string) (int, bool) {
	return slices.BinarySearchFunc(m.topics, name, func(t *timer.Topic, name string) int { return strings.Compare(t.Name, name) })
}

func (m *manyTopics) List(after string, limit int) []*timer.Topic {
	i, found := m.at(after)
	if found {
		i++
	}
	return slices.Clone(m.topics[i:min(i+limit, len(m.topics))])
}

func (m *manyTopics) Here(name string) (*timer.Topic, bool) {
	i, found := m.at(name)
	if !found {
		return nil, false
	}
	return m.topics[i], true
}

func (m *manyTopics) ByID(_ context.Context, id timer.TopicID) (*timer.Topic, error) {
	for _, t := range m.topics {
		if t.ID == id {
			return t, nil
		}
	}
	return nil, timer.ErrNoTopic
}

func allTopics() []*timer.Topic {
	topics := make([]*timer.Topic, timer.MaxTopics)
	for i := range topics {
		topics[i] = &timer.Topic{ID: timer.TopicID(1 + i), Name: fmt.Sprintf("team-%d.orders-%d", i%100, i), Policy: timer.DefaultPolicy()}
	}
	slices.SortFunc(topics, func(a, b *timer.Topic) int { return strings.Compare(a.Name, b.Name) })
	return topics
}

// narrowTokens are tokens that see little, or look at much: each with its patterns.
func narrowTokens(t testing.TB) (auth *Auth, tokens map[string]string) {
	t.Helper()
	tokens = map[string]string{}
	var many, ends []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("team-%d.orders-%d", i, i))
		ends = append(ends, fmt.Sprintf("*-9999%02d*x", i))
	}
	var lines []string
	for name, patterns := range map[string][]string{
		"all": {"*"}, "none": {"nothing.*"}, "last": {"team-99.orders-99999"}, "team": {"team-50.*"}, "ends": {"*-77777"}, "stars": {"*t*e*a*m*9*9*9*8*"}, "many": many, "many ends": ends,
	} {
		token, line, err := NewToken(TokenRule{Name: name, Scopes: []string{"read"}, Topics: patterns})
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
		tokens[name] = token
	}
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	auth, err := LoadAuth(file)
	if err != nil {
		t.Fatal(err)
	}
	return auth, tokens
}

// With as many topics as there may be, a page of them takes no longer than 50 ms, whichever topics
// the token sees. The processor's time counts, the client's included: there is nothing to wait for
// but other programs.
func TestTopicsOfAFullCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	auth, tokens := narrowTokens(t)
	topics := allTopics()
	h := newHarness(t, func(c *Config) {
		c.Auth, c.Engine = auth, &manyTopics{fakeTopics{c.Engine.(*fakeEngine)}, topics}
	})
	for name, token := range tokens {
		for _, query := range []string{"limit=1", "limit=1000", "prefix=team-7"} {
			var took []time.Duration
			for range 5 {
				begin := cpuTime()
				h.do("GET", "/v1/topics?"+query, "", "Authorization: Bearer "+token).want(200)
				took = append(took, cpuTime()-begin)
			}
			slices.Sort(took)
			if took[0] > slowdown*50*time.Millisecond {
				t.Errorf("%s, %s: %v", name, query, took)
			}
		}
	}
}

// TestCursorNamesNoUnseenTopic: whoever reads a cursor finds no topic in it that the token does not
// see, and nobody can make one to find out where a number is in the order of names.
func TestCursorNamesNoUnseenTopic(t *testing.T) {
	auth, tokens := narrowTokens(t)
	h := newHarness(t, func(c *Config) {
		c.Auth, c.Engine = auth, &manyTopics{fakeTopics{c.Engine.(*fakeEngine)}, allTopics()}
		c.Digest = func(text string) (uint64, error) { return xxhash.Sum64String("key" + text), nil }
	})
	for name, token := range tokens {
		who := auth.find([]byte(token))
		ask := func(cursor string) *reply {
			return h.do("GET", "/v1/topics?limit=20&cursor="+cursor, "", "Authorization: Bearer "+token)
		}
		r := h.do("GET", "/v1/topics?limit=20", "", "Authorization: Bearer "+token).want(200)
		for range 25 { // as many as the token needs that has to look at all topics
			cursor, more := r.json()["next_cursor"].(string)
			if !more {
				break
			}
			text, err := base64.RawURLEncoding.DecodeString(cursor)
			if err != nil {
				t.Fatal(err)
			}
			place, listing := text[:len(text)-8], xxhash.Sum64String("")
			if named := string(place[1:]); strings.HasPrefix(named, "team-") && !who.Sees(named) {
				t.Fatalf("%s: the cursor names %q", name, named)
			} else if !strings.HasPrefix(named, "team-") {
				place[len(place)-1] ^= 1
				ask(web.SealCursor(place, listing)).problem(400, web.BadRequest)
			}
			r = ask(cursor).want(200)
		}
		if _, more := r.json()["next_cursor"]; more && name != "all" && name != "team" {
			t.Errorf("%s: the listing does not end", name)
		}
	}
}

func BenchmarkListTopics(b *testing.B) {
	auth, tokens := narrowTokens(b)
	topics := allTopics()
	h := newHarness(b, func(c *Config) {
		c.Auth, c.Engine = auth, &manyTopics{fakeTopics{c.Engine.(*fakeEngine)}, topics}
	})
	for name, token := range tokens {
		b.Run(strings.ReplaceAll(name, " ", "-"), func(b *testing.B) {
			for b.Loop() {
				h.do("GET", "/v1/topics?limit=1", "", "Authorization: Bearer "+token).want(200)
			}
		})
	}
}
