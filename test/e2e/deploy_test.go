package e2e

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	yaml "go.yaml.in/yaml/v3"
)

// TestDeployedNodesFindEachOther starts three nodes with the flags in deploy/, for compose and for
// Kubernetes. Only addresses, host names and files differ. They must form a cluster.
func TestDeployedNodesFindEachOther(t *testing.T) {
	if testing.Short() {
		t.Skip("three nodes, twice")
	}
	for _, c := range []struct {
		name, host string
		args       func(t *testing.T) []string
	}{
		{"compose", `\bn%:`, composeArgs}, {"kubernetes", `\bcarillon-%\.carillon-nodes:`, kubernetesArgs},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			deployedCluster(t, c.host, c.args(t))
		})
	}
}

func composeArgs(t *testing.T) []string {
	var file struct {
		Node struct{ Command []string } `yaml:"x-node"`
	}
	readDeployed(t, "docker/compose.yaml", &file)
	first := slices.Index(file.Node.Command, "serve")
	return append(file.Node.Command[first:], "--name=n1", "--advertise=n1")
}

func kubernetesArgs(t *testing.T) []string {
	text, err := os.ReadFile("../../deploy/kubernetes/carillon.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		var set struct {
			Kind string
			Spec struct {
				Template struct {
					Spec struct{ Containers []struct{ Args []string } }
				}
			}
		}
		if err := yaml.Unmarshal([]byte(doc), &set); err != nil {
			t.Fatal(err)
		}
		if set.Kind == "StatefulSet" {
			return set.Spec.Template.Spec.Containers[0].Args
		}
	}
	t.Fatal("there is no StatefulSet")
	return nil
}

func readDeployed(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// deployedCluster starts the nodes and waits for a healthy cluster. The args must name three hosts
// that match host, in which % stands for the node's number.
func deployedCluster(t *testing.T, host string, args []string) {
	c := &cluster{members: loopbackMembers(t, 3)}
	for i, m := range c.members {
		line := []string{binary, "serve", "--data", m.dir, "--http", m.http}
		for _, arg := range args[1:] {
			name, value, _ := strings.Cut(arg, "=")
			switch name {
			case "--join":
				if n := len(regexp.MustCompile(strings.ReplaceAll(host, "%", `\d`)).FindAllString(value, -1)); n != 3 {
					t.Fatalf("%s names %d nodes", arg, n)
				}
				value = c.gossipAddresses()
			case "--peer":
				value = m.peer
			case "--gossip":
				value = m.gossip
			case "--name":
				value = m.name
			case "--advertise":
				value = "localhost" // a name, as in containers
			case "--gossip-key":
				value = c.keyFile(t)
			case "--auth-file":
				continue // the requests below have no token
			case "--http-host":
				value = strings.ReplaceAll(value, "$(POD_NAMESPACE)", "timers")
			}
			if strings.Contains(value, "$(") {
				t.Fatalf("node %d: %s is not known to this test", i, arg)
			}
			if name != arg {
				name += "=" + value
			}
			line = append(line, name)
		}
		m.running.Store(begin(t, line))
	}
	for _, m := range c.members {
		var seen string
		if !holdsWithinBy(lookEvery, formLimit, func() bool {
			answer := m.client.do("GET", "/v1/cluster", "")
			seen = string(answer.body)
			return strings.Contains(seen, `"healthy":true`) && strings.Count(seen, `"state":"alive"`) == len(c.members)
		}) {
			t.Fatalf("%s sees no healthy cluster within %v: %s", m.name, formLimit, tail(seen, 2000))
		}
	}
}
