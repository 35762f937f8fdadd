package bucket

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
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

// chain asks each provider until one has credentials. The chain of the library would fall back to
// requests without credentials, whose refusal hides the cause.
type chain struct {
	providers []credentials.Provider
	used      credentials.Provider
}

func newCredentials() *credentials.Credentials {
	c := &chain{providers: []credentials.Provider{files{}, &credentials.FileAWSCredentials{}}}
	if !strings.EqualFold(os.Getenv("AWS_EC2_METADATA_DISABLED"), "true") {
		c.providers = append(c.providers, &credentials.IAM{Client: &http.Client{Timeout: metadataTime}})
	}
	return credentials.New(c)
}

// RetrieveWithCredContext implements credentials.Provider.
func (c *chain) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	for _, p := range c.providers {
		v, err := p.RetrieveWithCredContext(cc)
		if _, isFile := p.(files); isFile && err != nil {
			return credentials.Value{}, err // it was asked for, so others are not meant
		}
		if err == nil && v.AccessKeyID != "" && v.SecretAccessKey != "" {
			c.used = p
			return v, nil
		}
	}
	return credentials.Value{}, ErrNoCredentials
}

// Retrieve implements credentials.Provider.
func (c *chain) Retrieve() (credentials.Value, error) {
	return c.RetrieveWithCredContext(&credentials.CredContext{Client: http.DefaultClient})
}

// IsExpired implements credentials.Provider.
func (c *chain) IsExpired() bool { return c.used == nil || c.used.IsExpired() }

// files reads the files that the variables with _FILE name, as secrets of containers come. They are
// read for each request, so that a rotated key needs no restart.
type files struct{}

// Retrieve implements credentials.Provider.
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

// RetrieveWithCredContext implements credentials.Provider.
func (f files) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	return f.Retrieve()
}

// IsExpired implements credentials.Provider.
func (files) IsExpired() bool { return true }

// endpoint is where the store is: AWS, unless the environment names another.
func endpoint() (address string, secure bool, err error) {
	url := cmp.Or(os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"))
	if url == "" {
		return "s3.amazonaws.com", true, nil
	}
	if address, secure = strings.CutPrefix(url, "https://"); !secure {
		var plain bool
		if address, plain = strings.CutPrefix(url, "http://"); !plain {
			return "", false, errors.New("AWS_ENDPOINT_URL: must begin with https:// or http://")
		}
	}
	address = strings.TrimSuffix(address, "/")
	if address == "" || strings.ContainsAny(address, "/@?#") {
		return "", false, errors.New("AWS_ENDPOINT_URL: must be a host, perhaps with a port, and no more")
	}
	return address, secure, nil
}

// region is that of the bucket; "": the store is asked.
func region() string { return cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")) }
