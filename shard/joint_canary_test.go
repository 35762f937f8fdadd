//go:build canary

package shard

import "testing"

// TestJointChangesFindCanaries: what the changes of several voters are there for, planted.
func TestJointChangesFindCanaries(t *testing.T) {
	for _, name := range []string{"witness-silent"} {
		t.Run(name, func(t *testing.T) {
			Planted = name
			defer func() { Planted = "" }()
			for round := range uint64(30) {
				for i := range jointChanges {
					if err := jointChanges[i].try(t, round, 10); err != nil {
						t.Logf("found in round %d: %.300s", round, err)
						return
					}
				}
			}
			t.Error("not found")
		})
	}
}
