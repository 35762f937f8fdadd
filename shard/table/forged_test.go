package table

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"testing"

	"carillon/test/sim/forged"
	"carillon/timer"
)

// TestTableInATable: payloads, headers, labels and error texts that are batches, snapshots and frames
// are data in a batch and in a snapshot of the table.
func TestTableInATable(t *testing.T) {
	inner := smallTable(t)
	var command Batch
	command.Reset(benchNow, 1, 1)
	command.Command(&timer.Command{Kind: timer.Add, Topic: 1, ID: "forged", Spec: &timer.Spec{DueMs: benchNow + 1}})
	forms := forged.Forms()
	forms["snapshot of a table"], forms["batch"] = image(inner), command.Bytes()
	table := New(7, benchNow)
	var b Batch
	b.Reset(benchNow, 1, 1)
	for name, form := range forms {
		text := base64.RawURLEncoding.EncodeToString(form)
		b.Command(&timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprint(len(name), "-", text[:20]), Spec: &timer.Spec{
			DueMs: benchNow + 1, Payload: form, PayloadKind: timer.BinaryPayload, Labels: []string{text[:40]},
			Callback: timer.Callback{URL: "http://there/", Headers: []timer.Header{{Name: "X-Form", Value: string(form)}}},
		}})
	}
	if _, err := table.Apply(b.Bytes(), nil, nil); err != nil {
		t.Fatal(err)
	}
	if n := table.Totals().Scheduled; int(n) != len(forms) {
		t.Fatalf("%d timers of %d", n, len(forms))
	}
	whole := image(table)
	loaded, err := Load(7, bytes.NewReader(whole))
	if err != nil || loaded.Hash() != table.Hash() || dump(loaded) != dump(table) {
		t.Fatalf("the loaded table differs: %v", err)
	}
	for at := 0; at < len(whole); at += 7 { // also within and right behind the inner one
		if _, err := Load(7, bytes.NewReader(whole[:at])); err == nil {
			t.Fatalf("cut at %d of %d, it was loaded", at, len(whole))
		}
	}
}
