package tracing

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// DefaultSample is the part of the changes without a trace of their own that are traced.
const DefaultSample = 0.01

// Config is where spans go, and how many. Where a field is empty, the environment variables of
// OpenTelemetry count.
type Config struct {
	// Endpoint is the collector, http://host:4318; "": that of the environment, and where that
	// names none, nothing is traced.
	Endpoint string
	// Sample is the part of the changes that come without a trace and are traced, 0–1; nil: that of
	// the environment, else DefaultSample. Changes with a trace are traced if their caller's is.
	Sample  *float64
	Version string        // of this program
	Node    string        // its name
	Rand    func() uint64 // 64 random bits; any goroutine
}

// Validate reports all that is wrong, at once.
func (c *Config) Validate() (errs []error) {
	if c.Endpoint != "" {
		if u, err := url.Parse(c.Endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			errs = append(errs, errors.New("otlp-endpoint: must be http://host:port or https://host:port; credentials go into OTEL_EXPORTER_OTLP_HEADERS"))
		}
	}
	if s, err := c.sample(); err != nil {
		errs = append(errs, fmt.Errorf("trace-sample: %w", err))
	} else if !(s >= 0 && s <= 1) {
		errs = append(errs, fmt.Errorf("trace-sample: %v is out of 0–1", s))
	}
	return errs
}

// on reports whether anything is traced.
func (c *Config) on() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return cmp.Or(c.Endpoint, os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")) != ""
}

// sample is the part of the changes that is traced.
func (c *Config) sample() (float64, error) {
	if c.Sample != nil {
		return *c.Sample, nil
	}
	part := os.Getenv("OTEL_TRACES_SAMPLER_ARG")
	switch sampler := strings.TrimPrefix(os.Getenv("OTEL_TRACES_SAMPLER"), "parentbased_"); {
	case sampler == "always_on":
		return 1, nil
	case sampler == "always_off":
		return 0, nil
	case part != "":
		s, err := strconv.ParseFloat(part, 64)
		if err != nil {
			return 0, errors.New("OTEL_TRACES_SAMPLER_ARG is no number")
		}
		return s, nil
	case sampler == "traceidratio":
		return 1, nil
	}
	return DefaultSample, nil
}
