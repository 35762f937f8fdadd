package bucket

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// ErrNoCredentials means that none of the places where AWS's tools look has credentials.
var ErrNoCredentials = errors.New("no credentials for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or AWS_ACCESS_KEY_ID_FILE and " +
	"AWS_SECRET_ACCESS_KEY_FILE), AWS_PROFILE with AWS_SHARED_CREDENTIALS_FILE, or a role of the machine")

// metadataTime bounds a question to the machine's metadata service, which most machines lack.
const metadataTime = 5 * time.Second

// chain is a credentials.Provider that asks each of its own until one has credentials. The chain of
// the library would fall back to requests without credentials, whose refusal hides the cause.
type chain struct {
	providers []provider
	used      credentials.Provider
}

type provider struct {
	credentials.Provider
	name string
	only bool // it was asked for by name, so after a fault of it no other is meant
}

var errHalf = errors.New("only one of the two keys is set")

func newCredentials() *credentials.Credentials {
	c := &chain{providers: []provider{
		{files{}, "the environment", true}, {&credentials.FileAWSCredentials{}, "the profile", os.Getenv("AWS_PROFILE") != ""},
	}}
	if !strings.EqualFold(os.Getenv("AWS_EC2_METADATA_DISABLED"), "true") {
		c.providers = append(c.providers, provider{&credentials.IAM{Client: &http.Client{Timeout: metadataTime}}, "the machine's role", false})
	}
	return credentials.New(c)
}

func (c *chain) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	var faults []string
	for _, p := range c.providers {
		v, err := p.RetrieveWithCredContext(cc)
		switch {
		case err == nil && v.AccessKeyID != "" && v.SecretAccessKey != "":
			c.used = p
			return v, nil
		case err != nil && p.only:
			return credentials.Value{}, fmt.Errorf("%s: %s", p.name, faultText(err))
		case err == nil && v.AccessKeyID+v.SecretAccessKey != "":
			err = errHalf
		}
		if err != nil {
			faults = append(faults, p.name+": "+faultText(err))
		}
	}
	if len(faults) == 0 {
		return credentials.Value{}, ErrNoCredentials
	}
	return credentials.Value{}, fmt.Errorf("%w (%s)", ErrNoCredentials, strings.Join(faults, "; "))
}

// faultText is an error's text without what may be a secret: a URL, or a line of a file.
func faultText(err error) string {
	if asked, ok := errors.AsType[*url.Error](err); ok {
		err = asked.Err
	}
	text := err.Error()
	for _, f := range []string{"key-value delimiter not found", "empty key name", "missing closing key quote", "unclosed section"} {
		if strings.Contains(text, f) {
			return f // what follows is the line
		}
	}
	return text
}

func (c *chain) Retrieve() (credentials.Value, error) {
	return c.RetrieveWithCredContext(&credentials.CredContext{Client: http.DefaultClient})
}

func (c *chain) IsExpired() bool { return c.used == nil || c.used.IsExpired() }

// files is a credentials.Provider that reads the files which the variables with _FILE name, as
// secrets of containers come. They are read for each request, so that a rotated key needs no
// restart.
type files struct{}

func (files) Retrieve() (v credentials.Value, err error) {
	v.SignerType = credentials.SignatureV4
	for _, f := range []struct {
		variable string
		to       *string
	}{{"AWS_ACCESS_KEY_ID", &v.AccessKeyID}, {"AWS_SECRET_ACCESS_KEY", &v.SecretAccessKey}, {"AWS_SESSION_TOKEN", &v.SessionToken}} {
		name := os.Getenv(f.variable + "_FILE")
		if name == "" {
			*f.to = os.Getenv(f.variable)
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return credentials.Value{}, fmt.Errorf("%s_FILE: %w", f.variable, err)
		}
		*f.to = strings.TrimSpace(string(text))
	}
	return v, nil
}

func (f files) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	return f.Retrieve()
}

func (files) IsExpired() bool { return true }

// endpoint is where the store is: AWS, unless the environment names another.
func endpoint() (address string, secure bool, err error) {
	name := "AWS_ENDPOINT_URL_S3"
	given := os.Getenv(name)
	if given == "" {
		name = "AWS_ENDPOINT_URL"
		given = os.Getenv(name)
	}
	if given == "" {
		return "s3.amazonaws.com", true, nil
	}
	if address, secure = strings.CutPrefix(given, "https://"); !secure {
		var plain bool
		if address, plain = strings.CutPrefix(given, "http://"); !plain {
			return "", false, errors.New(name + ": must begin with https:// or http://")
		}
	}
	address = strings.TrimSuffix(address, "/")
	if address == "" || strings.ContainsAny(address, "/@?#") {
		return "", false, errors.New(name + ": must be a host, perhaps with a port, and no more")
	}
	return address, secure, nil
}

// region is that of the bucket; "": the store is asked.
func region() string { return cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")) }
