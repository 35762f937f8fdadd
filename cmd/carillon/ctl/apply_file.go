package ctl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"carillon/transport/api/topics"
)

// fields are the members of a JSON object.
type fields map[string]json.RawMessage

type topicInFile struct {
	name   string
	policy fields
	file   string
	line   int
	node   *yaml.Node // of the policy
}

var yamlLine = regexp.MustCompile(`(?:yaml: )?(?:unmarshal errors:\s*)?\bline (\d+): `)

// readTopics reads topics: {name: policy} in YAML, of which JSON is a part. A key that is there
// twice is a fault, and an unknown one too. Values are checked by shown.
func readTopics(file string, stdin io.Reader) ([]topicInFile, error) {
	var text []byte
	var err error
	if file == "-" {
		file = "stdin"
		text, err = io.ReadAll(stdin)
	} else {
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, err
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	var all any // decoded for the keys that are there twice
	if err = dec.Decode(&doc); err == nil {
		err = doc.Decode(&all)
	}
	if errors.Is(err, io.EOF) || err == nil && len(members(doc.Content[0])) == 0 {
		return nil, fmt.Errorf("%s: has no topics; it must be topics: {name: policy}", file)
	} else if err != nil {
		return nil, errors.New(yamlLine.ReplaceAllString(err.Error(), file+":$1: "))
	} else if !errors.Is(dec.Decode(&more), io.EOF) {
		return nil, fmt.Errorf("%s: has a second document; one file is one document", file)
	}
	datesAreTexts(&doc)
	var wanted []topicInFile
	for _, root := range members(doc.Content[0]) {
		if root.key.Value != "topics" {
			return nil, fmt.Errorf("%s:%d: unknown field %q; the file must be topics: {name: policy}", file, root.key.Line, root.key.Value)
		}
		if root.value.Kind != yaml.MappingNode { // an empty value would have --prune delete all
			return nil, fmt.Errorf("%s:%d: topics must be {name: policy}; write topics: {} for none", file, root.key.Line)
		}
		for _, m := range members(root.value) {
			t := topicInFile{name: m.key.Value, policy: fields{}, file: file, line: m.key.Line, node: m.value}
			if err := t.readPolicy(); err != nil {
				return nil, err
			}
			wanted = append(wanted, t)
		}
	}
	return wanted, nil
}

// readPolicy turns the policy into JSON; none is the default one.
func (t *topicInFile) readPolicy() error {
	var values map[string]any
	if err := t.node.Decode(&values); err != nil {
		return t.fault(t.line, "its policy must be field: value")
	}
	for name, value := range values {
		text, err := json.Marshal(value)
		if err != nil {
			return t.fault(t.line, name+": keys must be texts, and numbers finite")
		}
		t.policy[name] = text
	}
	if bad := notDecimal(t.node); bad != nil {
		return t.fault(bad.Line, fmt.Sprintf("%s: must be a decimal number, as in JSON; a text has quotes", bad.Value))
	}
	return nil
}

func (t *topicInFile) fault(line int, text string) error {
	return fmt.Errorf("%s:%d: %s: %s", t.file, line, t.name, text)
}

// shown is the topic's policy as a node will show it; had is what it shows now, nil for no topic.
func (t *topicInFile) shown(had []byte) (fields, error) {
	shown, err := topics.PolicyAsShown(plain(t.policy), had)
	if err != nil {
		return nil, t.fault(max(t.line, lineOf(t.node, "", err.Error())), err.Error())
	}
	return membersOf(shown), nil
}

// outcomeFields are those of a policy that name topics.
var outcomeFields = []string{"on_done", "on_dead"}

// outcomeTopic is the topic that on_done or on_dead names; "" if none.
func (t *topicInFile) outcomeTopic(field string) string { return outcomeTopic(t.policy[field]) }

func outcomeTopic(value []byte) string {
	var to struct{ Topic string }
	_ = json.Unmarshal(value, &to)
	return to.Topic
}

func (t *topicInFile) outcomeFault(field, text string) error {
	text = fmt.Sprintf("%s: %s: %s", field, t.outcomeTopic(field), text)
	return t.fault(max(t.line, lineOf(t.node, "", text)), text)
}

// lineOf finds the line of a fault: that of the deepest key that its text names by path, or in
// quotes if it is unknown. 0: there is none, as where it was merged from elsewhere.
func lineOf(n *yaml.Node, path, fault string) (line int) {
	for _, m := range members(n) {
		at := path + m.key.Value
		if strings.HasPrefix(fault, at+":") || strings.HasPrefix(fault, at+".") || strings.HasPrefix(fault, "unknown field "+strconv.Quote(m.key.Value)) {
			line = m.key.Line
		}
		line = max(line, lineOf(m.value, at+".", fault))
	}
	return line
}

type member struct{ key, value *yaml.Node }

// members are those of a mapping, none of anything else.
func members(n *yaml.Node) (all []member) {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		value := n.Content[i+1]
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		all = append(all, member{n.Content[i], value})
	}
	return all
}

var decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?$`)

// notDecimal is a number that YAML reads by rules of its own: 010 would be 8, and 1e2 100.
func notDecimal(n *yaml.Node) *yaml.Node {
	if tag := n.ShortTag(); n.Kind == yaml.ScalarNode && (tag == "!!int" || tag == "!!float") && !decimal.MatchString(n.Value) {
		return n
	}
	for _, child := range n.Content {
		if bad := notDecimal(child); bad != nil {
			return bad
		}
	}
	return nil
}

func datesAreTexts(n *yaml.Node) {
	if n.ShortTag() == "!!timestamp" {
		n.Tag = "!!str"
	}
	for _, child := range n.Content {
		datesAreTexts(child)
	}
}

// namedFirst puts topics that others name in on_done and on_dead in front of these: a policy names
// only topics that are there. Otherwise the order stays.
func namedFirst(wanted []topicInFile) (ordered []topicInFile) {
	at := map[string]int{}
	for i := range wanted {
		at[wanted[i].name] = i
	}
	placed := make([]bool, len(wanted))
	var place func(i int)
	place = func(i int) {
		if placed[i] {
			return
		}
		placed[i] = true
		for _, field := range outcomeFields {
			if k, there := at[wanted[i].outcomeTopic(field)]; there {
				place(k)
			}
		}
		ordered = append(ordered, wanted[i])
	}
	for i := range wanted {
		place(i)
	}
	return ordered
}
