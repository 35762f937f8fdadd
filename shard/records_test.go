package shard

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
		"record-entries":   appendEntries(nil, []*pb.Entry{entry(6), entry(7), change}),
		"record-hardstate": appendHardState(nil, hardState{term: 3, vote: 7<<24 | 1, commit: 1000}),
		"record-mark":      appendMark(nil, snapshotMark{replica: 7<<24 | 1, index: 500, term: 3, hash: 0x1122334455667788, epoch: 9, installed: true, conf: conf}),
		"record-create":    appendMark(nil, snapshotMark{replica: 7<<24 | 1, index: 1, term: 1, conf: &pb.ConfState{Voters: []uint64{7<<24 | 1}}}),
	}
}

// TestRecordsGolden: what an earlier build wrote is read, and what this one writes is the same.
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
	ents, err := readEntries(s["record-entries"])
	if err != nil || len(ents) != 3 || ents[2].index != 8 || ents[2].term != 4 || ents[2].typ != pb.EntryConfChangeV2 || string(ents[1].data) != "3/7" {
		t.Errorf("%+v, %v", ents, err)
	}
	hard, err := decodeHardState(s["record-hardstate"])
	if err != nil || hard != (hardState{3, 7<<24 | 1, 1000}) {
		t.Errorf("%+v, %v", hard, err)
	}
	m, err := decodeMark(s["record-mark"])
	if err != nil || m.replica != 7<<24|1 || m.index != 500 || m.term != 3 || m.hash != 0x1122334455667788 ||
		!reflect.DeepEqual(m.conf.GetVoters(), []uint64{1, 2, 300}) || !m.conf.GetAutoLeave() || len(m.conf.GetLearnersNext()) != 2 {
		t.Errorf("%+v, %v", m, err)
	}
	for name, whole := range s {
		for cut := range whole { // a cut anywhere is found
			_, e1 := readEntries(whole[:cut])
			_, e2 := decodeHardState(whole[:cut])
			_, e3 := decodeMark(whole[:cut])
			if name == "record-entries" && e1 == nil || name == "record-hardstate" && e2 == nil || name == "record-mark" && e3 == nil {
				t.Errorf("%s cut at %d is read", name, cut)
			}
		}
	}
}

// FuzzRecords: no body makes a reader panic, and what is read is written as it was.
func FuzzRecords(f *testing.F) {
	for _, b := range recordSamples() {
		f.Add(b)
	}
	f.Add([]byte{})
	f.Add([]byte{recordVersion, 1, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		if ents, err := readEntries(b); err == nil {
			list := make([]*pb.Entry, len(ents))
			for i := range ents {
				list[i] = &pb.Entry{Index: &ents[i].index, Term: &ents[i].term, Type: &ents[i].typ, Data: ents[i].data}
			}
			again, err := readEntries(appendEntries(nil, list))
			if err != nil || len(again) != len(ents) {
				t.Fatalf("%d entries, again %d: %v", len(ents), len(again), err)
			}
			for i := range ents {
				if again[i].index != ents[i].index || again[i].term != ents[i].term || !bytes.Equal(again[i].data, ents[i].data) {
					t.Fatalf("entry %d: %+v, again %+v", i, ents[i], again[i])
				}
			}
		}
		if h, err := decodeHardState(b); err == nil {
			if again, err := decodeHardState(appendHardState(nil, h)); err != nil || again != h {
				t.Fatalf("%+v, again %+v: %v", h, again, err)
			}
		}
		if m, err := decodeMark(b); err == nil {
			if again, err := decodeMark(appendMark(nil, m)); err != nil || again.index != m.index || again.hash != m.hash {
				t.Fatalf("%+v, again %+v: %v", m, again, err)
			}
		}
	})
}
