package api

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"carillon/timer"
	"carillon/transport/api/web"

	yaml "go.yaml.in/yaml/v3"
)

// Bounds of the auth file.
const (
	maxAuthBytes     = 4 << 20
	maxTokens        = 10_000
	maxTokenName     = 128
	maxTokenPatterns = 1000
)

// Auth holds the tokens of an auth file. Safe for use by any goroutine.
type Auth struct {
	path       string
	principals atomic.Pointer[principals]
}

// LoadAuth reads an auth file: a YAML list, as parseAuth describes it.
func LoadAuth(path string) (*Auth, error) {
	a := &Auth{path: path}
	return a, a.Reload()
}

// Reload reads the file again. When that fails the tokens stay as they were.
func (a *Auth) Reload() error {
	data, err := readAuth(a.path)
	if err != nil {
		return fmt.Errorf("auth-file: %w", err)
	}
	list, err := parseAuth(data)
	if err != nil {
		return fmt.Errorf("auth-file: %s: %w", a.path, err)
	}
	if before := a.principals.Load(); before != nil {
		keepQuotas(list, before)
	}
	a.principals.Store(newPrincipals(list))
	return nil
}

// readAuth refuses a file that others can write: they would be admins. Reading it shows them names
// and hashes, and no token.
func readAuth(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("others than its owner may write %s: chmod go-w %s", path, path)
	}
	return io.ReadAll(io.LimitReader(f, maxAuthBytes+1))
}

const authExample = `- {name: shop, sha256: "…", scopes: [add, read], topics: ["orders.*"]}`

// parseAuth reads the list of tokens. All faults are reported at once, each with its line, and
// never with the contents of the file: it may be the wrong one.
func parseAuth(data []byte) ([]web.Principal, error) {
	if len(data) > maxAuthBytes {
		return nil, fmt.Errorf("is over %d MiB", maxAuthBytes>>20)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%sis not YAML; a list of tokens is expected, like %s", yamlLine(err), authExample)
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is a second document after the first; one list of tokens is expected")
	}
	root := &doc
	if doc.Kind == yaml.DocumentNode {
		root = doc.Content[0]
	}
	if root.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("line %d: a list of tokens is expected, like %s", max(root.Line, 1), authExample)
	}
	if len(root.Content) == 0 || len(root.Content) > maxTokens {
		return nil, fmt.Errorf("line %d: 1 to %d tokens are expected", max(root.Line, 1), maxTokens)
	}
	r := authReader{lines: map[[sha256.Size]byte]int{}}
	list := make([]web.Principal, len(root.Content))
	for i, item := range root.Content {
		r.token(item, &list[i])
	}
	return list, errors.Join(r.faults...)
}

var lineInError = regexp.MustCompile(`line (\d+)`)

// yamlLine is the line that a YAML error names; its text may quote the file.
func yamlLine(err error) string {
	if m := lineInError.FindStringSubmatch(err.Error()); m != nil {
		return "line " + m[1] + ": this "
	}
	return ""
}

// authReader reads the tokens of an auth file and gathers its faults.
type authReader struct {
	faults []error
	lines  map[[sha256.Size]byte]int // of the hashes
}

func (r *authReader) fault(n *yaml.Node, format string, args ...any) {
	r.faults = append(r.faults, fmt.Errorf("line %d: %s", n.Line, fmt.Sprintf(format, args...)))
}

var tokenKeys = []string{"name", "sha256", "scopes", "topics", "max_topics", "quota", "quota_changes", "quota_reads"}

// token reads one entry.
func (r *authReader) token(n *yaml.Node, p *web.Principal) {
	fields, ok := r.mapping(n, "a token", tokenKeys)
	if !ok {
		return
	}
	if f := fields["name"]; f == nil || f.Kind != yaml.ScalarNode || f.Value == "" || len(f.Value) > maxTokenName {
		r.fault(cmp.Or(f, n), "name: 1 to %d characters are expected", maxTokenName)
	} else {
		p.Name = f.Value
	}
	r.hash(cmp.Or(fields["sha256"], n), fields["sha256"], p)
	for _, s := range r.list(cmp.Or(fields["scopes"], n), fields["scopes"], "scopes", len(web.Scopes)) {
		if web.ScopeNames[s.Value] == 0 {
			r.fault(s, "scopes: each one of %s is expected", strings.Join(web.Scopes, ", "))
		}
		p.Scopes |= web.ScopeNames[s.Value]
	}
	for _, t := range r.list(cmp.Or(fields["topics"], n), fields["topics"], "topics", maxTokenPatterns) {
		if t.Value == "" || len(t.Value) > web.MaxTopicBytes || !web.Only(strings.ReplaceAll(t.Value, "*", ""), web.TopicRest) {
			r.fault(t, `topics: patterns of names are expected, such as "orders", "orders.*" or "*"`)
		}
		p.Topics = append(p.Topics, t.Value)
	}
	p.All = slices.ContainsFunc(p.Topics, func(pattern string) bool { return strings.Trim(pattern, "*") == "" })
	if p.Scopes&web.ScopeCluster != 0 && !p.All {
		r.fault(cmp.Or(fields["topics"], n), `topics: the scope cluster is of every topic; it needs topics: ["*"]`)
	}
	p.Prefixes = web.PatternPrefixes(p.Topics)
	p.Making.Most = web.DefaultMaxTopics
	if f := fields["max_topics"]; f != nil {
		most, err := strconv.Atoi(f.Value)
		if f.Kind != yaml.ScalarNode || err != nil || most < 1 || most > timer.MaxTopics {
			r.fault(f, "max_topics: a number from 1 to %d is expected", timer.MaxTopics)
		}
		p.Making.Most = most
	}
	for kind, name := range web.QuotaNames {
		if f := fields[name]; f != nil {
			p.Quotas[kind] = r.quota(f, name)
		}
	}
}

// hash reads the token's, which no other entry may have.
func (r *authReader) hash(at, f *yaml.Node, p *web.Principal) {
	var sum []byte
	var err error
	if f != nil && f.Kind == yaml.ScalarNode {
		sum, err = hex.DecodeString(f.Value)
	}
	if err != nil || len(sum) != sha256.Size {
		r.fault(at, "sha256: 64 hex digits are expected, as carillon token prints them")
		return
	}
	copy(p.Sum[:], sum)
	if line, twice := r.lines[p.Sum]; twice {
		r.fault(at, "sha256: this token is on line %d, too", line)
	}
	r.lines[p.Sum] = at.Line
}

// quota reads how many a second, and at once.
func (r *authReader) quota(n *yaml.Node, name string) *web.Quota {
	fields, ok := r.mapping(n, name, []string{"per_second", "burst"})
	if !ok {
		return nil
	}
	var rule web.QuotaRule
	if f := fields["per_second"]; f != nil && f.Kind == yaml.ScalarNode {
		rule.PerSecond, _ = strconv.ParseFloat(f.Value, 64) // 0 is refused below
	}
	if f := fields["burst"]; f != nil {
		var err error
		if rule.Burst, err = strconv.Atoi(f.Value); err != nil || f.Kind != yaml.ScalarNode {
			rule.Burst = -1
		}
	}
	if text := rule.Fault(); text != "" {
		r.fault(n, "%s.%s", name, text)
	}
	return web.NewQuota(rule)
}

// mapping reads the known fields of an object, each once.
func (r *authReader) mapping(n *yaml.Node, what string, known []string) (fields map[string]*yaml.Node, ok bool) {
	if n.Kind != yaml.MappingNode {
		r.fault(n, "%s is expected as {%s: …}", what, known[0])
		return nil, false
	}
	fields = map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		switch {
		case key.Kind != yaml.ScalarNode || !slices.Contains(known, key.Value):
			r.fault(key, "%s has these fields: %s; this is none of them", what, strings.Join(known, ", "))
		case fields[key.Value] != nil:
			r.fault(key, "%s is given twice", key.Value)
		default:
			fields[key.Value] = n.Content[i+1]
		}
	}
	return fields, true
}

// list reads a list of words that is not empty.
func (r *authReader) list(at, n *yaml.Node, name string, most int) []*yaml.Node {
	if n == nil || n.Kind != yaml.SequenceNode || len(n.Content) == 0 || len(n.Content) > most {
		r.fault(at, "%s: a list of 1 to %d is expected", name, most)
		return nil
	}
	for _, item := range n.Content {
		if item.Kind != yaml.ScalarNode {
			r.fault(item, "%s: a list of plain words is expected", name)
			return nil
		}
	}
	return n.Content
}

// keepQuotas leaves tokens that were there before the rest of their quotas, where
// these are the same.
func keepQuotas(list []web.Principal, before *principals) {
	for i := range list {
		p := &list[i]
		old := before.bySum[p.Sum]
		for kind, q := range p.Quotas {
			if old != nil && q != nil && old.Quotas[kind] != nil && q.Rule == old.Quotas[kind].Rule {
				p.Quotas[kind] = old.Quotas[kind]
			}
		}
	}
}
