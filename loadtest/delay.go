package loadtest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"carillon/timer/duration"
)

// maxDelay is Carillon's default horizon of ten years.
const maxDelay = 10 * 365 * 24 * time.Hour

// delay is a distribution of times from send to due.
type delay struct {
	shape    delayShape
	from, to time.Duration // fixed: from = to; exponential: from is the mean
}

type delayShape int

const (
	delayFixed delayShape = iota
	delayUniform
	delayExponential
)

// parseDelay reads "5s", "fixed:5s", "uniform:1s-10s" or "exp:5s".
func parseDelay(text string) (delay, error) {
	fault := fmt.Errorf("loadtest: delay %q is none of 5s, uniform:1s-10s, exp:5s, or is beyond %v", text, maxDelay)
	shape, rest, found := strings.Cut(strings.Replace(text, " ", ":", 1), ":")
	if !found {
		shape, rest = "fixed", text
	}
	d := delay{}
	first, second := rest, rest
	switch shape {
	case "fixed":
		d.shape = delayFixed
	case "exp":
		d.shape = delayExponential
	case "uniform":
		d.shape = delayUniform
		if first, second, found = strings.Cut(rest, "-"); !found {
			return d, fault
		}
	default:
		return d, fault
	}
	var err error
	if d.from, err = duration.Parse(first); err != nil {
		return d, fault
	}
	if d.to, err = duration.Parse(second); err != nil || d.from < 0 || d.to < d.from || d.to > maxDelay {
		return d, fault
	}
	return d, nil
}

func (d delay) draw(rng *rand.Rand) time.Duration {
	switch d.shape {
	case delayUniform:
		return d.from + time.Duration(rng.Int64N(int64(d.to-d.from)+1))
	case delayExponential:
		return min(time.Duration(rng.ExpFloat64()*float64(d.from)), maxDelay)
	}
	return d.from
}
