package callback

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// ErrBadHeader is wrapped by every fault that ValidateHeader finds.
var ErrBadHeader = errors.New("bad callback header")

const maxHeaderBytes = 4 << 10 // name and value

// forbiddenHeaders are set by us, or frame the message, or belong to the
// connection. Lower case. Idempotency-Key makes some clients resend by themselves.
var forbiddenHeaders = map[string]bool{
	"host": true, "content-length": true, "transfer-encoding": true,
	"connection": true, "keep-alive": true, "te": true, "trailer": true,
	"upgrade": true, "expect": true, "content-type": true, "user-agent": true,
	"idempotency-key": true, "x-idempotency-key": true,
}

var forbiddenPrefixes = []string{"proxy-", "webhook-", "carillon-"}

// ValidateHeader accepts a user header: a token as name that is not ours, nor like ours with
// underscores, a value without control characters, together at most 4 KiB.
func ValidateHeader(name, value string) error {
	if len(name)+len(value) > maxHeaderBytes {
		return fmt.Errorf("%w: name and value over %d bytes", ErrBadHeader, maxHeaderBytes)
	}
	if !httpguts.ValidHeaderFieldName(name) {
		return fmt.Errorf("%w: name %.64q is not a token", ErrBadHeader, name)
	}
	// Gateways of the CGI kind take one for the other.
	lower := strings.ReplaceAll(strings.ToLower(name), "_", "-")
	if forbiddenHeaders[lower] {
		return fmt.Errorf("%w: %s may not be set", ErrBadHeader, name)
	}
	for _, prefix := range forbiddenPrefixes {
		if strings.HasPrefix(lower, prefix) {
			return fmt.Errorf("%w: %s* may not be set", ErrBadHeader, prefix)
		}
	}
	if hasControl(value) {
		return fmt.Errorf("%w: value of %s holds a control character", ErrBadHeader, name)
	}
	return nil
}

// hasControl reports any of 0x00–0x1f (tab included) and 0x7f.
func hasControl(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] == 0x7f {
			return true
		}
	}
	return false
}
