package callback

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	"carillon/transport/callback/address"
)

// maxErrBytes bounds delivery.Outcome.Err.
const maxErrBytes = 256

var (
	errTimeout    = errors.New("timeout")
	errBadAnswer  = errors.New("bad response")
	errPeerClosed = errors.New("connection closed")
	errHeldBack   = errors.New("not sent: the lease would end during the call")
)

// fault turns the error of a dial or an exchange into a short stable text. Texts of the network are
// taken only where they cannot hold text of the user or the receiver: no URL, no header, no body.
func fault(err error) string {
	var dns *net.DNSError
	var op *net.OpError
	var secure *tlsError
	switch {
	case errors.As(err, &dns) && dns.IsTimeout: // the resolver's time-out is not the receiver's
		return "name lookup failed: timeout"
	case isTimeout(err):
		return "timeout"
	case errors.Is(err, address.ErrRefused):
		return printable("refused: " + innermost(err, address.ErrRefused))
	case errors.Is(err, errBadAnswer), errors.Is(err, errPeerClosed):
		return err.Error()
	case outOfFiles(err):
		return "connection failed: out of file descriptors"
	case errors.As(err, &secure):
		return printable("tls: " + tlsReason(secure.err))
	case errors.As(err, &dns) && dns.IsNotFound:
		return "name not found"
	case errors.As(err, &dns):
		return "name lookup failed"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "connection reset"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.EADDRNOTAVAIL):
		return "unreachable"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.ErrClosedPipe):
		return "connection closed"
	case errors.As(err, &op):
		return printable("connection failed: " + op.Op)
	}
	return "connection failed"
}

// outOfFiles is this node's own trouble, not the receiver's.
func outOfFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, errTimeout) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

// innermost is the text of the error that wraps the sentinel directly.
func innermost(err, sentinel error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil || next == sentinel || !errors.Is(next, sentinel) {
			return err.Error()
		}
		err = next
	}
}

func tlsReason(err error) string {
	var verify *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var host x509.HostnameError
	var authority x509.UnknownAuthorityError
	switch {
	case errors.As(err, &host):
		return "certificate is for another name"
	case errors.As(err, &authority):
		return "certificate of an unknown authority"
	case errors.As(err, &verify):
		return "certificate does not verify"
	case errors.As(err, &record):
		return "the receiver does not speak TLS"
	}
	return "handshake failed"
}

// printable bounds a text and replaces characters that do not belong on one line.
func printable(s string) string {
	if len(s) > maxErrBytes {
		s = s[:maxErrBytes]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}
