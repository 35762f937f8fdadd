package address

import (
	"errors"
	"net/url"
	"strings"
	"testing"
)

func TestValidateURL(t *testing.T) {
	f := func(u string, want Key) {
		t.Helper()
		k, err := ParseKey(u)
		if err != nil || k != want {
			t.Errorf("ParseKey(%q) = %+v, %v; want %+v", u, k, err, want)
		}
	}
	f("http://shop.example/hooks", Key{"http", "shop.example", 80, ""})
	f("https://Shop.Example", Key{"https", "shop.example", 443, ""})
	f("HTTP://a_b-c.example:8080?x=1", Key{"http", "a_b-c.example", 8080, ""})
	f("http://10.0.0.1:65535/", Key{"http", "10.0.0.1", 65535, ""})
	f("https://[2001:DB8:0::1]:8443/x", Key{"https", "2001:db8::1", 8443, ""})
	f("http://[::1]/", Key{"http", "::1", 80, ""})
	f("http://xn--bcher-kva.example/", Key{"http", "xn--bcher-kva.example", 80, ""})
	f("http://host/a/../b//c?q=%2e%2E&u=@:", Key{"http", "host", 80, ""})
	f("http://1.2.3.4a/", Key{"http", "1.2.3.4a", 80, ""})
	f("http://example.com./", Key{"http", "example.com.", 80, ""})
}

func TestValidateURLRefuses(t *testing.T) {
	for _, u := range []string{
		"", "shop.example", "//shop.example", "ftp://h/", "http:/h", "http://", "http:///x", "https://:80/",
		"http://u@h/", "http://u:p@h/", "http://h@evil/", "http://h/#f", "http://h#f", "http://h/ x", "http://h/\tx",
		"http://h\\@evil/", "http://h/\\x", "http://h/\x00", "http://h/\r\nX: y", "http://h/\x7f", "http://h/ü", "http://hü/",
		"http://h:/", "http://h:0/", "http://h:65536/", "http://h:-1/", "http://h:+1/", "http://h:080/", "http://h:80:80/", "http://h:http/",
		"http://127.1/", "http://2130706433/", "http://0x7f.1/", "http://0x7f000001/", "http://0177.0.0.1/", "http://1.2.3/",
		"http://1.2.3.4.5/", "http://256.1.1.1/", "http://01.2.3.4/", "http://1.2.3.4./", "http://127.0.0.0x1/", "http://foo.0x1/", "http://foo.1/",
		"http://[::1/", "http://::1/", "http://[::1]x/", "http://[::1%25eth0]/", "http://[fe80::1%eth0]/", "http://[1.2.3.4]/", "http://[]/",
		"http://h/%zz", "http://h/%", "http://h/%2", "http://h/?q=%g0", "http://h/a%2", "http://h/%%41", "http://%31.2.3.4/", "http://h%41/", "http://h%00/", "http://a..b/", "http://.a/", "http://./", "http://a,b/", "http://a*b/",
		"http://" + strings.Repeat("a", 64) + "/", "http://" + strings.Repeat("a.", 130) + "a/", "http://h/" + strings.Repeat("x", maxURLBytes),
	} {
		if err := ValidateURL(u); !errors.Is(err, ErrBadURL) {
			t.Errorf("ValidateURL(%.80q) = %v, want ErrBadURL", u, err)
		}
	}
}

// A name in another script is refused with the way to spell it.
func TestForeignNamesAreToldOfPunycode(t *testing.T) {
	if err := ValidateURL("http://bücher.example/"); err == nil || !strings.Contains(err.Error(), "punycode (xn--") {
		t.Error(err)
	}
	if err := ValidateURL("http://a b/"); err == nil || strings.Contains(err.Error(), "punycode") {
		t.Error(err)
	}
}

func TestKeyString(t *testing.T) {
	f := func(u, want string) {
		t.Helper()
		if got := keyOf(t, u).String(); got != want {
			t.Errorf("%q: %q, want %q", u, got, want)
		}
	}
	f("http://h/x", "http://h:80")
	f("https://[::1]/x", "https://[::1]:443")
}

// FuzzURL: an accepted URL is read alike by net/url, so no part of the system sees another host
// than the one that was checked.
func FuzzURL(f *testing.F) {
	for _, seed := range []string{
		"http://h/", "https://h:8443/a?b=c", "http://1.2.3.4:80/", "http://[::1]:80/", "http://u@h/", "http://127.1/", "HTTP://H",
		"http://h?x", "http://[::ffff:1.2.3.4]/", "http://h/%zz", "http://a.0x1", "http://h:99999", "http://[fe80::1%25a]/", "http://h\\@e",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		ours, err := Parse(raw)
		if err != nil {
			if !errors.Is(err, ErrBadURL) {
				t.Fatalf("%q: %v does not wrap ErrBadURL", raw, err)
			}
			return
		}
		if ours.Port == 0 || ours.Host == "" || ours.Authority == "" || len(raw) > maxURLBytes {
			t.Fatalf("%q accepted as %+v", raw, ours)
		}
		if !strings.HasSuffix(raw, ours.Authority+ours.Target) {
			t.Fatalf("%q: authority %q and target %q are not its bytes", raw, ours.Authority, ours.Target)
		}
		theirs, err := url.Parse(raw)
		if err != nil {
			return // odd percent signs in the path: sent as they are
		}
		if theirs.User != nil || theirs.Fragment != "" || theirs.Scheme != ours.Scheme || theirs.Host != ours.Authority {
			t.Fatalf("%q: net/url reads %q %q, we read %+v", raw, theirs.Scheme, theirs.Host, ours)
		}
		_ = local.CheckURL(raw)
	})
}

func keyOf(t *testing.T, u string) Key {
	t.Helper()
	k, err := ParseKey(u)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
