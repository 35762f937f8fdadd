package record

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
)

var rewriteRecords = flag.Bool("records.rewrite", false, "write the golden files of the log's records anew")

func recordSamples() map[string][]byte {
	conf := &pb.ConfState{Voters: []uint64{1, 2, 300}, Learners: []uint64{4}, VotersOutgoing: []uint64{5}, LearnersNext: []uint64{6, 7}, AutoLeave: new(true)}
	entry := func(index uint64) *pb.Entry {
		return &pb.Entry{Index: &index, Term: new(uint64(3)), Data: fmt.Appendf(nil, "3/%d", index)}
	}
	change := &pb.Entry{Index: new(uint64(8)), Term: new(uint64(4)), Type: pb.EntryConfChangeV2.Enum(), Data: []byte("c")}
	return map[string][]byte{
		"record-entries":   AppendEntries(nil, []*pb.Entry{entry(6), entry(7), change}),
		"record-hardstate": AppendHardState(nil, HardState{Term: 3, Vote: 7<<24 | 1, Commit: 1000}),
		"record-mark":      AppendMark(nil, Mark{Replica: 7<<24 | 1, Index: 500, Term: 3, Hash: 0x1122334455667788, Epoch: 9, Installed: true, Conf: conf}),
		"record-create":    AppendMark(nil, Mark{Replica: 7<<24 | 1, Index: 1, Term: 1, Conf: &pb.ConfState{Voters: []uint64{7<<24 | 1}}}),
	}
}

// TestRecordsGolden checks that golden records of earlier builds are read, and that this build
// writes the same bytes.
func TestRecordsGolden(t *testing.T) {
	for name, got := range recordSamples() {
		path := filepath.Join("testdata", "golden", name)
		if *rewriteRecords {
			if err := os.WriteFile(path, []byte(hex.EncodeToString(got)+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := hex.DecodeString(string(bytes.TrimSpace(text)))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %x, want %x (%v)", name, got, want, err)
		}
	}
}

func TestRecordsRoundTrip(t *testing.T) {
	s := recordSamples()
	ents, err := ReadEntries(s["record-entries"])
	if err != nil || len(ents) != 3 || ents[2].Index != 8 || ents[2].Term != 4 || ents[2].Type != pb.EntryConfChangeV2 || string(ents[1].Data) != "3/7" {
		t.Errorf("%+v, %v", ents, err)
	}
	hard, err := DecodeHardState(s["record-hardstate"])
	if err != nil || hard != (HardState{3, 7<<24 | 1, 1000}) {
		t.Errorf("%+v, %v", hard, err)
	}
	m, err := DecodeMark(s["record-mark"])
	if err != nil || m.Replica != 7<<24|1 || m.Index != 500 || m.Term != 3 || m.Hash != 0x1122334455667788 ||
		!reflect.DeepEqual(m.Conf.GetVoters(), []uint64{1, 2, 300}) || !m.Conf.GetAutoLeave() || len(m.Conf.GetLearnersNext()) != 2 {
		t.Errorf("%+v, %v", m, err)
	}
	for name, whole := range s {
		for cut := range whole { // every truncation is detected
			_, e1 := ReadEntries(whole[:cut])
			_, e2 := DecodeHardState(whole[:cut])
			_, e3 := DecodeMark(whole[:cut])
			if name == "record-entries" && e1 == nil || name == "record-hardstate" && e2 == nil || name == "record-mark" && e3 == nil {
				t.Errorf("%s cut at %d is read", name, cut)
			}
		}
	}
}

// FuzzRecords checks that no body makes a reader panic, and that decoding and encoding round-trip.
func FuzzRecords(f *testing.F) {
	for _, b := range recordSamples() {
		f.Add(b)
	}
	f.Add([]byte{})
	f.Add([]byte{recordVersion, 1, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		if ents, err := ReadEntries(b); err == nil {
			list := make([]*pb.Entry, len(ents))
			for i := range ents {
				list[i] = &pb.Entry{Index: &ents[i].Index, Term: &ents[i].Term, Type: &ents[i].Type, Data: ents[i].Data}
			}
			again, err := ReadEntries(AppendEntries(nil, list))
			if err != nil || len(again) != len(ents) {
				t.Fatalf("%d entries, again %d: %v", len(ents), len(again), err)
			}
			for i := range ents {
				if again[i].Index != ents[i].Index || again[i].Term != ents[i].Term || !bytes.Equal(again[i].Data, ents[i].Data) {
					t.Fatalf("entry %d: %+v, again %+v", i, ents[i], again[i])
				}
			}
		}
		if h, err := DecodeHardState(b); err == nil {
			if again, err := DecodeHardState(AppendHardState(nil, h)); err != nil || again != h {
				t.Fatalf("%+v, again %+v: %v", h, again, err)
			}
		}
		if m, err := DecodeMark(b); err == nil {
			if again, err := DecodeMark(AppendMark(nil, m)); err != nil || again.Index != m.Index || again.Hash != m.Hash {
				t.Fatalf("%+v, again %+v: %v", m, again, err)
			}
		}
	})
}
