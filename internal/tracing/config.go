package tracing

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// DefaultSample is the part of the changes without a trace of their own that are traced.
const DefaultSample = 0.01

// Variables of OpenTelemetry whose values may be credentials.
const (
	headersEnv       = "OTEL_EXPORTER_OTLP_HEADERS"
	tracesHeadersEnv = "OTEL_EXPORTER_OTLP_TRACES_HEADERS"
	attributesEnv    = "OTEL_RESOURCE_ATTRIBUTES"
)

const samplerEnv = "OTEL_TRACES_SAMPLER"

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
	if c.Endpoint != "" && !isEndpoint(c.Endpoint) {
		errs = append(errs, errors.New("otlp-endpoint: "+endpointForm))
	}
	if c.on() {
		errs = append(errs, c.validateEnv()...)
	}
	if s, err := c.sample(); err != nil {
		errs = append(errs, fmt.Errorf("trace-sample: %w", err))
	} else if !(s >= 0 && s <= 1) {
		errs = append(errs, fmt.Errorf("trace-sample: %v is out of 0–1", s))
	}
	return errs
}

const endpointForm = "must be http://host:port or https://host:port; credentials go into " + headersEnv

func isEndpoint(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" &&
		u.User == nil && u.RawQuery == "" && u.Fragment == ""
}

// Variables of OpenTelemetry that are integers, those of time in milliseconds.
var integersEnv = []string{
	"OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
	"OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_EXPORT_TIMEOUT", "OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
}

// validateEnv checks the variables that count. OpenTelemetry leaves out what it cannot read; a node
// without its credentials could not report. The faults name the variable only: values may be
// credentials.
func (c *Config) validateEnv() (errs []error) {
	if name, value := endpointOfEnv(); c.Endpoint == "" && !isEndpoint(value) {
		errs = append(errs, fmt.Errorf("%s: %s", name, endpointForm))
	}
	for _, name := range []string{headersEnv, tracesHeadersEnv, attributesEnv} {
		isPair := isHeader
		if name == attributesEnv {
			isPair = isAttribute
		}
		for pair := range strings.SplitSeq(env(name), ",") {
			if strings.TrimSpace(pair) != "" && !isPair(pair) {
				errs = append(errs, fmt.Errorf("%s: must be name=value,name=value, each value percent-encoded", name))
				break
			}
		}
	}
	for _, name := range integersEnv {
		if value := os.Getenv(name); value != "" {
			if n, err := strconv.Atoi(value); err != nil || n < 0 {
				errs = append(errs, fmt.Errorf("%s: must be an integer, not below 0; of a time, milliseconds", name))
			}
		}
	}
	switch strings.TrimPrefix(os.Getenv(samplerEnv), "parentbased_") {
	case "", "always_on", "always_off", "traceidratio":
	default:
		errs = append(errs, errors.New(samplerEnv+": must be always_on, always_off or traceidratio, perhaps with parentbased_ in front"))
	}
	return errs
}

func isAttribute(pair string) bool {
	_, value, ok := strings.Cut(pair, "=")
	_, err := url.PathUnescape(value)
	return ok && err == nil
}

func isHeader(pair string) bool {
	name, value, ok := strings.Cut(pair, "=")
	value, err := url.PathUnescape(value)
	return ok && err == nil && httpguts.ValidHeaderFieldName(strings.TrimSpace(name)) &&
		httpguts.ValidHeaderFieldValue(strings.TrimSpace(value))
}

// endpointOfEnv is the collector that the environment names, and the variable that does: "" if none
// does.
func endpointOfEnv() (name, value string) {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"} {
		if value := env(name); value != "" {
			return name, value
		}
	}
	return "", ""
}

// env reads a variable as OpenTelemetry does.
func env(name string) string { return strings.TrimSpace(os.Getenv(name)) }

// on reports whether anything is traced.
func (c *Config) on() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	_, named := endpointOfEnv()
	return c.Endpoint != "" || named != ""
}

func (c *Config) sample() (float64, error) {
	if c.Sample != nil {
		return *c.Sample, nil
	}
	part := os.Getenv("OTEL_TRACES_SAMPLER_ARG")
	switch sampler := strings.TrimPrefix(os.Getenv(samplerEnv), "parentbased_"); {
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
