package timers

import "carillon/internal/fan"

// fanOut bounds the calls into the engine that one request makes at a time.
const fanOut = 16

// each calls f for 0 to n-1, up to fanOut at a time, and waits for all.
func each(n int, f func(i int)) {
	if n == 1 {
		f(0)
		return
	}
	var all fan.Group
	workers := min(n, fanOut)
	for w := range workers {
		all.Go(func() {
			for i := w; i < n; i += workers {
				f(i)
			}
		})
	}
	all.Wait()
}
