package loadtest

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// mix is the share of each operation in a mixed run, cumulative.
type mix [len(operationNames)]float64

// parseMix reads "add=50,patch=15,cancel=20,get=15". The shares need not sum to
// anything; without adds there would be nothing to work on.
func parseMix(text string) (mix, error) {
	var m mix
	fault := fmt.Errorf("loadtest: mix %q is not of the form add=50,patch=15,cancel=20,get=15", text)
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		share, err := strconv.ParseFloat(value, 64)
		if err != nil || !(share >= 0 && share <= 1e9) {
			return m, fault
		}
		known := false
		for op, candidate := range operationNames {
			if candidate == strings.TrimSpace(name) {
				m[op], known = share, true
			}
		}
		if !known {
			return m, fault
		}
	}
	if m[opAdd] == 0 {
		return m, fmt.Errorf("loadtest: mix %q adds nothing", text)
	}
	for op := 1; op < len(m); op++ {
		m[op] += m[op-1]
	}
	return m, nil
}

func (m mix) draw(rng *rand.Rand) operation {
	at := rng.Float64() * m[len(m)-1]
	for op, upTo := range m {
		if at < upTo {
			return operation(op)
		}
	}
	return opAdd
}
