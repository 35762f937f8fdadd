package terminal

import "fmt"

// Many is a number with its noun.
func Many(n int64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
