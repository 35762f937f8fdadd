//go:build canary

package shard

import "testing"

// TestJointChangesFindCanaries: what the changes of several voters are there for, planted.
func TestJointChangesFindCanaries(t *testing.T) {
	for _, name := range []string{"witness-silent", "settled-too-early", "dropped-before-copied"} {
		t.Run(name, func(t *testing.T) {
			Planted = name
			defer func() { Planted = "" }()
			for i := range jointChanges {
				if err := jointChanges[i].try(t, 400); err != nil {
					t.Logf("found: %.300s", err)
					return
				}
			}
			t.Error("not found")
		})
	}
}
