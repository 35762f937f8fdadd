package client

import (
	"os"
	"os/exec"
	"regexp"
	"testing"
)

// TestPythonReceiver runs the receiver of docs/callbacks.md on the page's own example.
func TestPythonReceiver(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 here")
	}
	page, err := os.ReadFile("../docs/callbacks.md")
	must(t, err)
	program := regexp.MustCompile("(?s)```python\n(.*?)```").FindSubmatch(page)
	if program == nil {
		t.Fatal("docs/callbacks.md has no Python")
	}
	const use = `
good = {"webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp": "1614265330", "carillon-topic": "orders",
        "carillon-timer": "{o-77}close", "carillon-due": "1614265330000", "carillon-attempt": "2", "carillon-fence": "7",
        "webhook-signature": "v1,x v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        "carillon-signature": "v1,gUfpyP4Ajg1OYhURY2R8wSPredmP9gSByJdTfvLph9Q="}
def check(headers, body=b'{"test": 2432232314}'):
    verify("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", headers, body, lambda: 1614265331)
check(good)
for headers, body in [({**good, "carillon-fence": "8"}, None), ({**good, "carillon-receipt": "r"}, None), ({**good, "webhook-timestamp": "1"}, None),
                      ({**good, "carillon-signature": ""}, None), (good, b"{}")]:
    try:
        check(headers, body or b'{"test": 2432232314}')
    except ValueError:
        continue
    raise SystemExit("believed: %r" % headers)
`
	if out, err := exec.CommandContext(t.Context(), python, "-c", string(program[1])+use).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
