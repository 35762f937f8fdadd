package ring

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"carillon/internal/feature"
	"carillon/test/testkit"
	"carillon/timer"
)

func leveled(id uint64, level feature.Level) Node {
	n := node(id)
	n.Level = level
	return n
}

// TestLevelIsTheLeastOfFounders: a cluster begins at the least level of its founders. It keeps that
// when they are upgraded, and each may go back. A node that understands less is refused.
func TestLevelIsTheLeastOfFounders(t *testing.T) {
	s := NewState(nil, nil)
	level := func(want feature.Level, after string) {
		t.Helper()
		again := NewState(nil, nil)
		testkit.Must(t, again.Load(s.Save()))
		if s.Level() != want || again.Level() != want || again.Hash() != s.Hash() {
			t.Errorf("after %s: level %d, %d when it is read again, want %d", after, s.Level(), again.Level(), want)
		}
	}
	register := func(n Node) Command { return Command{Verb: Register, Node: &n} }
	level(feature.LevelFirst, "nothing")
	must(t, s, FoundCommand("c", 4, 1, []Node{leveled(1, 3), leveled(2, 2), leveled(3, 3)}))
	level(2, "founding")
	must(t, s, register(leveled(2, 3)))
	level(2, "the last upgrade")
	must(t, s, register(leveled(3, 2)))
	level(2, "a way back")
	refused(t, s, ErrTooOld, register(leveled(2, 1)))
	refused(t, s, ErrTooOld, register(leveled(4, 0))) // it says none, so it has the first
	level(2, "refusals")
	must(t, s, register(leveled(4, 7)))
	level(2, "a node of a release to come")
}

// TestLevelRisesWhenFinalized: an upgrade of all nodes changes nothing, and each may go back, until
// an operator finalizes it. That is refused, with the names of those that hold it back, as long as
// one does not understand the level.
func TestLevelRisesWhenFinalized(t *testing.T) {
	const before, now = feature.LevelOfBuild, feature.LevelOfTests
	s := NewState(nil, nil)
	register := func(n Node) Command { return Command{Verb: Register, Node: &n} }
	finalize := func(level feature.Level) Command { return Command{Verb: Finalize, Level: level} }
	refused(t, s, ErrNotFounded, finalize(now))
	must(t, s, FoundCommand("c", 4, 1, []Node{leveled(1, before), leveled(2, before), leveled(3, before)}))
	must(t, s, register(leveled(1, now)))
	must(t, s, register(leveled(3, now)))
	want := Upgrade{Level: before, Next: now, Lacking: []string{"n2"}}
	if u := s.Upgrade(); !reflect.DeepEqual(u, want) || u.Waits() {
		t.Errorf("half an upgrade is %+v, want %+v", u, want)
	}
	early := finalize(now)
	r := s.applied(1, early.Encode())
	if !errors.Is(r.Err, timer.ErrFeatureLevel) || !strings.Contains(r.Err.Error(), "n2 (release ") || strings.Contains(r.Err.Error(), "n1") {
		t.Errorf("with n2 of the level before: %v", r.Err)
	}
	if err := s.Check(early.Encode()); !errors.Is(err, timer.ErrFeatureLevel) {
		t.Errorf("with n2 of the level before it is proposed: %v", err)
	}
	must(t, s, register(leveled(2, now)))
	if u := s.Upgrade(); s.Level() != before || !u.Waits() {
		t.Errorf("all are upgraded: level %d, %+v", s.Level(), u)
	}
	must(t, s, register(leveled(2, before))) // and back
	refused(t, s, timer.ErrFeatureLevel, finalize(now))
	must(t, s, register(leveled(2, now)))
	version := s.Version()
	if err := s.Check(early.Encode()); err != nil {
		t.Errorf("it may not be proposed: %v", err)
	}
	must(t, s, finalize(now))
	if u := s.Upgrade(); s.Level() != now || u.Waits() || u.Next != now || s.Version() <= version {
		t.Errorf("finalized: level %d, %+v, version %d after %d", s.Level(), u, s.Version(), version)
	}
	must(t, s, finalize(now))
	must(t, s, finalize(before))
	refused(t, s, ErrTooOld, register(leveled(2, before)))
	refused(t, s, timer.ErrFeatureLevel, finalize(now+1))
	for id := uint64(1); id <= 3; id++ {
		must(t, s, register(leveled(id, now+2)))
	}
	must(t, s, finalize(now+1)) // one step of two
	again := NewState(nil, nil)
	if err := again.Load(s.Save()); err != nil || again.Level() != now+1 || again.Hash() != s.Hash() || s.Audit() != nil {
		t.Errorf("level %d when it is read again, %v; %v", again.Level(), err, s.Audit())
	}
}

// TestFinalizeNamesFewNodes: the refusal stays readable in a large cluster.
func TestFinalizeNamesFewNodes(t *testing.T) {
	const before, now = feature.LevelOfBuild, feature.LevelOfTests
	s := NewState(nil, nil)
	var nodes []Node
	for id := uint64(1); id <= 20; id++ {
		nodes = append(nodes, leveled(id, before))
	}
	must(t, s, FoundCommand("c", 4, 1, nodes))
	finalize := Command{Verb: Finalize, Level: now}
	if err := s.applied(1, finalize.Encode()).Err; err == nil || !strings.Contains(err.Error(), "and 12 more") {
		t.Error(err)
	}
}

// TestNewClusterBeginsAtItsHighestLevel: there is nothing to go back to.
func TestNewClusterBeginsAtItsHighestLevel(t *testing.T) {
	s := NewState(nil, nil)
	must(t, s, FoundCommand("c", 4, 1, []Node{leveled(1, 7)}))
	if s.Level() != 7 {
		t.Errorf("level %d", s.Level())
	}
}

// TestFoundersTellTheirLevels: several founders know each other by gossip alone, and their cluster
// begins at the highest level that all of them understand.
func TestFoundersTellTheirLevels(t *testing.T) {
	for _, levels := range [][]feature.Level{{feature.LevelOfBuild, feature.LevelOfBuild, feature.LevelOfBuild}, {7, 5, 6}} {
		var seen []Member
		for i, level := range levels {
			m := Member{ID: uint64(i + 1), Name: fmt.Sprint("n", i+1), Level: level, Expect: len(levels), Shards: 4, Replicas: 3}
			meta, err := encodeMember(m, false)
			testkit.Must(t, err)
			heard, _, err := decodeMember(gossipNode{meta: meta})
			testkit.Must(t, err)
			seen = append(seen, heard)
		}
		step := NextFounding(seen[0], seen, func() string { return "c" })
		if step.Begin == nil {
			t.Fatalf("no plan: %+v", step)
		}
		s := NewState(nil, nil)
		must(t, s, FoundCommand("c", 4, 3, step.Begin.Nodes))
		if want := slices.Min(levels); s.Level() != want {
			t.Errorf("founders of levels %v begin at %d, want %d", levels, s.Level(), want)
		}
		if u := s.Upgrade(); slices.Min(levels) == slices.Max(levels) && u.Waits() {
			t.Errorf("a new cluster of one release waits for its upgrade: %+v", u)
		}
	}
}

// TestRemovedNodeHoldsNoUpgradeBack: an old node that is gone for good does not; one whose place is
// taken by another of its release does.
func TestRemovedNodeHoldsNoUpgradeBack(t *testing.T) {
	const before, now = feature.LevelOfBuild, feature.LevelOfTests
	s := NewState(nil, nil)
	must(t, s, FoundCommand("c", 4, 3, []Node{leveled(1, now), leveled(2, before), leveled(4, now)}))
	successor := leveled(3, before)
	successor.Name = "n2"
	must(t, s, Command{Verb: Register, Node: &successor, Replace: true})
	refused(t, s, timer.ErrFeatureLevel, Command{Verb: Finalize, Level: now})
	must(t, s, Command{Verb: Remove, NodeID: 3, Force: true})
	if s.Level() != before {
		t.Errorf("level %d, but nobody has finalized the upgrade", s.Level())
	}
	must(t, s, Command{Verb: Finalize, Level: now})
	if err := s.Audit(); err != nil || s.Level() != now {
		t.Errorf("level %d, %v", s.Level(), err)
	}
}

// TestNothingUnknownIsApplied: a verb or a field that this build does not know is neither proposed
// nor skipped: a replica that meets one stops, since others may know it.
func TestNothingUnknownIsApplied(t *testing.T) {
	s := founded(t, 2, 1, 2)
	must(t, s, Command{Verb: Ensure, Name: "a"})
	before := string(s.Save())
	for _, data := range []string{
		`{"verb":"burn","name":"a"}`, `{"verb":"pause","name":"a","gently":true}`, `{"verb":"put","name":"a","policy":{"MaxAttempts":3,"Mood":"good"}}`,
		`{"verb":"register","node":{"id":9,"name":"x","colour":"red"}}`, `{"verb":7}`,
	} {
		if _, err := s.Apply(1, []byte(data)); !errors.Is(err, feature.ErrNewer) {
			t.Errorf("%s: applied, %v", data, err)
		}
		if err := s.Check([]byte(data)); err == nil {
			t.Errorf("%s: may be proposed", data)
		}
	}
	if string(s.Save()) != before {
		t.Error("what cannot be applied has changed the state")
	}
	// Of no build: it is not proposed.
	for _, data := range []string{"", "{", "nonsense", `{"verb":"ensure","name":"b"}`, `{"verb":"put","name":"b","policy":null}`,
		`{"verb":"pause","name":"a"} {}`, `{"verb":"pause","name":"a"}x`, `{"verb":"new","new":1}x`} {
		if err := s.Check([]byte(data)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v", data, err)
		}
	}
	pause := Command{Verb: Pause, Name: "a"}
	if err := s.Check(pause.Encode()); err != nil {
		t.Errorf("pause: %v", err)
	}
}

// TestPolicyIsTheProposers: a topic is made with the policy that its command has. Nothing depends
// on the defaults of this build.
func TestPolicyIsTheProposers(t *testing.T) {
	s := founded(t, 2, 1, 2)
	ensure := Command{Verb: Ensure, Name: "of another release"}
	text := string(ensure.Encode())
	own := fmt.Sprintf(`"MaxAttempts":%d`, timer.DefaultPolicy().MaxAttempts)
	if !strings.Contains(text, own) {
		t.Fatalf("the policy is not in the command: %s", text)
	}
	s.applied(1, []byte(strings.Replace(text, own, `"MaxAttempts":99`, 1)))
	topic, _ := s.Named("of another release")
	if want := timer.DefaultPolicy(); topic == nil || topic.Policy.MaxAttempts != 99 || topic.Policy.LeaseMs != want.LeaseMs {
		t.Errorf("a topic that another release makes is %+v", topic)
	}
}

// TestConventionsInTheLog: a policy that does not use these fields is written without them.
func TestConventionsInTheLog(t *testing.T) {
	plain, event, keyed := timer.DefaultPolicy(), timer.DefaultPolicy(), timer.DefaultPolicy()
	event.CloudEvents = true
	keyed.SigningKeys = []timer.SigningKey{{Private: "whsk_a", Public: "whpk_a"}}
	for text, policy := range map[string]*timer.Policy{`"CloudEvents":true`: &event, `"SigningKeys":[{"Private":"whsk_a","Public":"whpk_a"}]`: &keyed} {
		s := founded(t, 2, 1, 2)
		with, without := Command{Verb: Put, Name: "a", Policy: policy}, Command{Verb: Put, Name: "a", Policy: &plain}
		name, _, _ := strings.Cut(text, ":")
		if !strings.Contains(string(with.Encode()), text) || strings.Contains(string(without.Encode()), name) {
			t.Errorf("%s, and without %s", with.Encode(), without.Encode())
		}
		do(t, s, with)
		if topic, _ := s.Named("a"); !reflect.DeepEqual(topic.Policy, *policy) {
			t.Errorf("%s: applied as %+v", name, topic.Policy)
		}
	}
}

// TestFieldsOfTheFirstLevel: a field that is added to the meta group's entries needs a new level: a
// node of an older release stops at an entry that has it. See docs/adr/0019.
func TestFieldsOfTheFirstLevel(t *testing.T) {
	const first = "AcceptLoss Batch.ByKey Batch.Max Batch.WaitMs CloudEvents Callback.HasHeaders Callback.Headers[].Name Callback.Headers[].Value Callback.Method Callback.TimeoutMs Callback.URL " +
		"ByContent Breaker.Failures Breaker.OpenMs Breaker.Probes Breaker.WindowMs ClusterID Concurrency DeadRetentionMs DestinationConcurrency Down Epoch Fenced Force Gossip Group " +
		"HTTP Heard HistoryMs ID Jitter JoinedMs Layout Learner LeaseMs Level MaxAttempts MaxBackoffMs MaxWaitMs Merge MinBackoffMs Multiplier Name Node NodeID OnDead OnDone " +
		"NoAnswers CollectMax Except From IfNew IfVersion PerKey.Fair Key RejectLate To Window.Days OwnBreaker Peer Pull Rate.Burst Rate.PerSecond Refused Replace Replicas Report Secret Secrets Serial Shards SigningKeys.Private SigningKeys.Public SinceMs SpreadMs Starts State StopOn Swaps.New Swaps.Sum Turn Verb Version Zone"
	known := strings.Fields(first)
	var walk func(v reflect.Type, path string)
	walk = func(v reflect.Type, path string) {
		switch v.Kind() {
		case reflect.Pointer:
			walk(v.Elem(), path)
		case reflect.Slice:
			walk(v.Elem(), path)
		case reflect.Struct:
			for i := range v.NumField() {
				if f := v.Field(i); f.Tag.Get("json") != "-" {
					walk(f.Type, path+"."+f.Name)
				}
			}
		default:
			if !slices.ContainsFunc(known, func(k string) bool { return strings.HasSuffix(path, "."+strings.ReplaceAll(k, "[]", "")) }) {
				t.Errorf("%s is new: it needs a level of its own", path)
			}
		}
	}
	walk(reflect.TypeFor[Command](), "")
}
