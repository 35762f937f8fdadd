package node

import (
	"bytes"
	"reflect"
	"slices"
	"testing"

	"carillon/ring"
	"carillon/shard"
)

// FuzzBeat: no status frame of another node makes its reader panic, and what is read is what it would send.
func FuzzBeat(f *testing.F) {
	f.Add((&beat{WallMs: 1_800_000_000_000, Starts: 3, Leads: []shard.ID{1, 2, 9},
		Says: ring.Says{Seq: 3<<32 + 5, Heard: []ring.Heard{{Node: 7, Seq: 9}}, Parts: []ring.Part{{Topic: 4, Leases: 2}, {Topic: 70, Leases: 1}}}}).encode())
	f.Add((&beat{WallMs: -1, Aside: true, Unfit: "its clock is off", Says: ring.Says{Unsure: true}}).encode())
	f.Add([]byte{beatFrame})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 || b[0] != beatFrame {
			return // who calls has looked
		}
		got, err := decodeBeat(b)
		if err != nil || len(got.Unfit) > maxUnfitText {
			return
		}
		again, err := decodeBeat(got.encode())
		if err != nil || !reflect.DeepEqual(got, again) {
			t.Fatalf("%+v\nagain %+v: %v", got, again, err)
		}
	})
}

// FuzzIdentity: a file is an identity only as it was written.
func FuzzIdentity(f *testing.F) {
	whole, err := fullIdentity().encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"version":1,"node_id":7,"starts":1,"founded":true}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		id, err := decodeIdentity(b)
		if err != nil || id.Version == unsummedVersion {
			return
		}
		if again, err := id.encode(); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%q was read, %q would be written: %v", b, again, err)
		}
	})
}

func FuzzKeyFile(f *testing.F) {
	f.Add([]byte("# in use\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n\n000102030405060708090a0b0c0d0e0f\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		keys, err := parseKeys(b, gossipKeySizes)
		if (err == nil) != (len(keys) > 0) || len(keys) > maxKeys {
			t.Fatalf("%d keys, %v", len(keys), err)
		}
		for i, key := range keys {
			if !slices.Contains(gossipKeySizes, len(key)) {
				t.Fatalf("a key of %d bytes", len(key))
			}
			if slices.ContainsFunc(keys[:i], func(k []byte) bool { return bytes.Equal(k, key) }) {
				t.Fatal("a key is there twice")
			}
		}
	})
}
