package wheel_test

import (
	"fmt"

	"carillon/wheel"
)

// The owner of a wheel tells it the time, in slices if much is due, and takes out the timers that
// have become due.
func Example() {
	const order, renewal, reminder = 1, 2, 3 // slots in the owner's timer table
	w := wheel.New(1_000)
	w.Add(order, 1_250)
	w.Add(renewal, 1_000+365*24*3_600_000)
	w.Add(reminder, 1_100)
	w.Move(reminder, 1_250)
	w.Remove(renewal)

	next, _ := w.Next()
	fmt.Println("nothing to do before", next)

	for done := false; !done; {
		_, done = w.Advance(1_300, 1_000)
		// other work of the owner's turn goes here
	}
	due := make([]wheel.Handle, 16)
	fmt.Println("due:", due[:w.Pop(due)])
	fmt.Println("pending:", w.Len())
	// Output:
	// nothing to do before 1216
	// due: [1 3]
	// pending: 0
}
