package e2e

import "testing"

// TestTutorial runs docs/tutorial.md as printed, with other addresses.
func TestTutorial(t *testing.T) {
	if testing.Short() {
		t.Skip("some seconds of a person's five minutes")
	}
	t.Parallel()
	readGuide(t, "../../docs/tutorial.md").run(t)
}
