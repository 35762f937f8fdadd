package api

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"carillon/test/testkit/growth"
)

// TestManyTokens: a request's token is found as soon among many as among few.
func TestManyTokens(t *testing.T) {
	growth.Check(t, growth.Dimension{Name: "tokens", N: 250, Longest: func(t testing.TB, n int) time.Duration {
		var entries []string
		for i := range n {
			entries = append(entries, fmt.Sprintf(`token-%d add "topic-%d"`, i, i))
		}
		path := filepath.Join(t.TempDir(), "tokens.yaml")
		authFile(t.(*testing.T), path, entries...)
		auth, err := LoadAuth(path)
		if err != nil {
			t.Fatal(err)
		}
		asked := 0
		return growth.LongestStep(t, func() bool {
			p := auth.find(fmt.Appendf(nil, "token-%d", n-1-asked))
			if p == nil || auth.find([]byte("nobody's")) != nil || !p.Sees(fmt.Sprintf("topic-%d", n-1-asked)) {
				t.Fatal("a token is not known by its hash")
			}
			asked++
			return asked < 100
		}, func() {})
	}})
}
