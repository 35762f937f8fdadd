//go:build !race

package table

import (
	"strings"
	"testing"

	"carillon/test/testkit"
	"carillon/timer"
)

func TestCostOfApplying(t *testing.T) {
	table := fillTable(t, 10_000)
	payload := []byte(strings.Repeat("x", 200))
	var rounds []testkit.Cost
	var batch Batch
	var results []timer.Result
	// The cheapest round counts, so at least one must be free of growth for any seed of the index.
	// With ten rounds, one run in twelve had no such round.
	for round := range 20 {
		batch.Reset(benchNow, 1, 1)
		for i := range benchBatch {
			batch.Command(&timer.Command{Kind: timer.Add, Topic: 1, ID: benchID(10_000 + round*benchBatch + i),
				Spec: &timer.Spec{DueMs: benchNow + 3_600_000, Payload: payload, PayloadKind: timer.JSONPayload}})
		}
		var c testkit.Cost
		c.Spent(func() {
			var err error
			if results, err = table.Apply(batch.Bytes(), nil, results[:0]); err != nil {
				t.Fatal(err)
			}
		})
		rounds = append(rounds, c)
	}
	testkit.Within(t, "applying an add", rounds, benchBatch, 0.1, 60)
}
