package e2e

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// browserLimit is how long one browser operation may take. It is generous: the machine may be busy.
const browserLimit = 2 * patience // a page may make a thousand requests

// chromium is a headless Chromium, driven by the DevTools protocol over a pipe
// (--remote-debugging-pipe). All tests share one.
type chromium struct {
	cmd *exec.Cmd
	to  *os.File

	mu      sync.Mutex
	last    int
	waiting map[int]chan json.RawMessage
	pages   map[string]*browser // by session
	gone    chan struct{}
}

// browser is a page of the chromium. It shares no cookies and no storage with other pages.
type browser struct {
	*chromium
	t       testing.TB
	session string
	faults  []string // reported by the page's console or its content security policy
	cut     bool     // a file of the page was not loaded, as another test changed the machine's networks
}

// theChromium starts the chromium. endChromium ends it after the last test.
var (
	theChromium = sync.OnceValues(startChromium)
	endChromium = func() {}
)

func startChromium() (*chromium, error) {
	program := os.Getenv("CARILLON_E2E_BROWSER")
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil && program == "" {
			program = path
		}
	}
	if program == "" {
		return nil, errors.New("no Chromium is installed (Debian: apt-get install chromium; CARILLON_E2E_BROWSER names another)")
	}
	profile, err := os.MkdirTemp("", "carillon-chromium-")
	if err != nil {
		return nil, err
	}
	endChromium = func() { awaitRemoved(profile) }
	in, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	from, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	// Pages that are not in front work as fast as the one that is.
	cmd := exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-background-timer-throttling", "--disable-backgrounding-occluded-windows", "--disable-renderer-backgrounding",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--disable-extensions", "--remote-debugging-pipe", "--user-data-dir="+profile, "about:blank")
	cmd.ExtraFiles = []*os.File{in, out} // Chromium reads from descriptor 3 and writes to 4
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = append(cleanEnv(), "HOME="+profile)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", program, err)
	}
	in.Close()
	out.Close()
	c := &chromium{cmd: cmd, to: to, waiting: map[int]chan json.RawMessage{}, pages: map[string]*browser{}, gone: make(chan struct{})}
	go c.read(from)
	endChromium = func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		<-c.gone
		awaitRemoved(profile)
	}
	return c, nil
}

// newBrowser opens a page. It skips the test where no browser is installed.
func newBrowser(t testing.TB) *browser {
	t.Helper()
	if testing.Short() {
		t.Skip("a browser takes some seconds")
	}
	c, err := theChromium()
	if err != nil {
		t.Skipf("SKIPPED: the console was not tried in a browser: %v", err)
	}
	b := &browser{chromium: c, t: t}
	var apart struct{ BrowserContextID string }
	if err := b.try("Target.createBrowserContext", nil, &apart); err != nil {
		t.Skipf("SKIPPED: %s does not start here, so the console was not tried in a browser: %v", c.cmd.Path, err)
	}
	of := map[string]any{"browserContextId": apart.BrowserContextID}
	t.Cleanup(func() {
		b.session = ""
		_ = b.try("Target.disposeBrowserContext", of, nil)
	})
	var target struct{ TargetID string }
	b.do("Target.createTarget", map[string]any{"url": "about:blank", "browserContextId": apart.BrowserContextID}, &target)
	var attached struct{ SessionID string }
	b.do("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	c.mu.Lock()
	b.session = attached.SessionID
	c.pages[b.session] = b
	c.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.do(domain+".enable", nil, nil)
	}
	b.do("Emulation.setFocusEmulationEnabled", map[string]any{"enabled": true}, nil)
	return b
}

// awaitRemoved removes a profile directory. It retries: exiting browser processes may still write
// there.
func awaitRemoved(dir string) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 500 {
		if os.RemoveAll(dir) == nil {
			return
		}
		<-tick.C
	}
}

// message is a DevTools request, answer or event.
type message struct {
	ID      int             `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// read dispatches the browser's messages until the browser exits.
func (c *chromium) read(from *os.File) {
	defer close(c.gone)
	s := bufio.NewScanner(from)
	s.Buffer(nil, 64<<20)
	s.Split(func(data []byte, end bool) (int, []byte, error) {
		if at := bytes.IndexByte(data, 0); at >= 0 {
			return at + 1, data[:at], nil
		}
		return 0, nil, nil
	})
	for s.Scan() {
		var m message
		if json.Unmarshal(s.Bytes(), &m) != nil {
			continue
		}
		c.mu.Lock()
		if answer := c.waiting[m.ID]; m.ID != 0 && answer != nil {
			delete(c.waiting, m.ID)
			if m.Error != nil {
				m.Result = append(json.RawMessage(`{"failed":`), append(m.Error, '}')...)
			}
			answer <- m.Result
		}
		if b := c.pages[m.Session]; b != nil {
			b.note(&m)
		}
		c.mu.Unlock()
	}
}

// note records complaints. An error answer of the API is not one; a missing file of the page is.
func (b *browser) note(m *message) {
	var p struct {
		Type             string
		ExceptionDetails struct {
			Text      string
			Exception struct{ Description string }
		}
		Args  []struct{ Value, Description any }
		Entry struct{ Source, Level, Text, URL string }
	}
	_ = json.Unmarshal(m.Params, &p)
	switch {
	case m.Method == "Runtime.exceptionThrown":
		b.faults = append(b.faults, p.ExceptionDetails.Text+" "+p.ExceptionDetails.Exception.Description)
	case m.Method == "Runtime.consoleAPICalled" && (p.Type == "error" || p.Type == "warning"):
		b.faults = append(b.faults, fmt.Sprint(p.Args))
	case m.Method == "Log.entryAdded" && strings.Contains(p.Entry.Text, "ERR_NETWORK_CHANGED"):
		b.cut = b.cut || !strings.Contains(p.Entry.URL, "/v1/")
	case m.Method == "Log.entryAdded" && p.Entry.Level == "error" && !(p.Entry.Source == "network" && strings.Contains(p.Entry.URL, "/v1/")):
		b.faults = append(b.faults, p.Entry.Source+": "+p.Entry.Text+" "+p.Entry.URL)
	}
}

// do sends a command to the browser and reads its answer into result.
func (b *browser) do(method string, params, result any) {
	b.t.Helper()
	if err := b.try(method, params, result); err != nil {
		b.t.Fatal(err)
	}
}

func (b *browser) try(method string, params, result any) error {
	if params == nil {
		params = struct{}{}
	}
	body, err := json.Marshal(params)
	if err != nil {
		return err
	}
	answer := make(chan json.RawMessage, 1)
	b.mu.Lock()
	b.last++
	id := b.last
	b.waiting[id] = answer
	b.mu.Unlock()
	text, err := json.Marshal(message{ID: id, Method: method, Params: body, Session: b.session})
	if err != nil {
		return err
	}
	if _, err := b.to.Write(append(text, 0)); err != nil {
		return fmt.Errorf("%s: the browser has ended: %w", method, err)
	}
	select {
	case raw := <-answer:
		if bytes.HasPrefix(raw, []byte(`{"failed":`)) {
			return fmt.Errorf("%s: %s", method, raw)
		}
		if result == nil {
			return nil
		}
		return json.Unmarshal(raw, result)
	case <-b.gone:
		return fmt.Errorf("%s: the browser has ended", method)
	case <-time.After(browserLimit):
		return fmt.Errorf("%s: no answer within %v", method, browserLimit)
	}
}

// eval evaluates an expression in the page and decodes its value from JSON into result.
func (b *browser) eval(expression string, result any) {
	b.t.Helper()
	if err := b.tryEval(expression, result); err != nil {
		b.t.Fatal(err)
	}
}

func (b *browser) tryEval(expression string, result any) error {
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	params := map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true, "userGesture": true}
	if err := b.try("Runtime.evaluate", params, &r); err != nil {
		return err
	}
	if r.ExceptionDetails != nil {
		return fmt.Errorf("%s: %s", expression, r.ExceptionDetails)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(r.Result.Value, result)
}

// awaitTrue polls a JavaScript expression until it is true.
func (b *browser) awaitTrue(what, expression string) {
	b.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(browserLimit); ; {
		var ok bool
		err := b.tryEval("Boolean("+expression+")", &ok)
		if ok && err == nil {
			return
		}
		if b.wasCut() {
			b.do("Page.reload", map[string]any{}, nil)
		}
		select {
		case <-tick.C: // the page may be navigating, so an error is tried again
		case <-deadline:
			b.t.Fatalf("not within %v: %s (%v)\nthe page:\n%s\ncomplaints: %q", browserLimit, what, err, b.text(), b.complaints())
		}
	}
}

// text is the page's visible text, after the URL's fragment.
func (b *browser) text() (text string) {
	_ = b.tryEval("location.hash + '\\n' + document.body.innerText", &text)
	return text
}

// sees waits until the page shows all texts.
func (b *browser) sees(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		b.awaitTrue(fmt.Sprintf("the page shows %q", text), "document.body.innerText.includes("+quoted(text)+")")
	}
}

// open loads an address, even if the page is already there.
func (b *browser) open(url string) {
	b.t.Helper()
	b.do("Page.navigate", map[string]any{"url": "about:blank"}, nil)
	b.do("Page.navigate", map[string]any{"url": url}, nil)
}

// foundText is an expression for the first visible, enabled element that matches the selector and
// contains the text. While a dialog is open only the elements of the topmost one match.
func foundText(selector, text string) string {
	return fmt.Sprintf(`[...([...document.querySelectorAll('dialog[open]')].at(-1) || document).querySelectorAll(%s)].find((e) => e.offsetParent !== null && !e.disabled && (e.innerText || e.value || '').includes(%s))`, quoted(selector), quoted(text))
}

// click waits for a button or link with the text and clicks it.
func (b *browser) click(text string) {
	b.t.Helper()
	found := foundText("button, a, summary", text)
	b.awaitTrue(fmt.Sprintf("there is %q to click", text), found)
	b.eval("((e) => { e.focus(); e.click(); })("+found+")", nil) // a pointer gives it the focus, too
}

// fill types text into the input with this name.
func (b *browser) fill(name, text string) {
	b.t.Helper()
	input := fmt.Sprintf(`([...document.querySelectorAll('dialog[open]')].at(-1) || document).querySelector('[name="%s"]')`, name)
	b.awaitTrue("there is an input "+name, "(() => { const e = "+input+"; e.focus(); e.select(); return e.offsetParent !== null && document.activeElement === e; })()")
	b.do("Input.insertText", map[string]any{"text": text}, nil)
	b.awaitTrue("the input "+name+" has the text", input+".value === "+quoted(text))
}

// tick clicks the checkbox with this name, or with this label.
func (b *browser) tick(name string) {
	b.t.Helper()
	box := fmt.Sprintf(`[...([...document.querySelectorAll('dialog[open]')].at(-1) || document).querySelectorAll('[type=checkbox]')].find((e) => e.name === %[1]s || e.getAttribute('aria-label') === %[1]s)`, quoted(name))
	b.awaitTrue("there is a checkbox "+name, box)
	b.eval(box+".click()", nil)
}

// choose selects the option with this text.
func (b *browser) choose(option string) {
	b.t.Helper()
	found := fmt.Sprintf(`[...document.querySelectorAll('option')].find((o) => o.text === %s)`, quoted(option))
	b.awaitTrue("there is an option "+option, found)
	b.eval(`(() => { const o = `+found+`, s = o.closest('select'); s.value = o.value; s.dispatchEvent(new Event('change', { bubbles: true })); })()`, nil)
}

// key presses a key.
func (b *browser) key(name string, code int) {
	b.t.Helper()
	for _, kind := range []string{"keyDown", "keyUp"} {
		b.do("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": name, "code": name, "windowsVirtualKeyCode": code}, nil)
	}
}

// enter presses Enter, which submits the form that has the focus.
func (b *browser) enter() {
	b.t.Helper()
	b.do("Input.dispatchKeyEvent", map[string]any{"type": "keyDown", "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}, nil)
	b.do("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}, nil)
}

// size sets the size of the window and the preferred colour scheme.
func (b *browser) size(width, height int, scheme string) {
	b.t.Helper()
	b.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	b.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// shot saves a screenshot in the directory CARILLON_E2E_SHOTS, if that is set.
func (b *browser) shot(name string) {
	b.t.Helper()
	dir := os.Getenv("CARILLON_E2E_SHOTS")
	if dir == "" {
		return
	}
	var r struct{ Data string }
	b.do("Page.captureScreenshot", map[string]any{"format": "png"}, &r)
	data, err := base64.StdEncoding.DecodeString(r.Data)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), data, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// wasCut reports, once, that the page has to be loaded again.
func (b *browser) wasCut() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.cut
	b.cut = false
	return was
}

func (b *browser) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.faults)
}

// content fails the test if the page's console or its content security policy reported an error.
func (b *browser) content() {
	b.t.Helper()
	if list := b.complaints(); len(list) > 0 {
		b.t.Errorf("the page's console has %d errors: %q", len(list), list)
	}
}

func quoted(s string) string {
	text, _ := json.Marshal(s)
	return string(text)
}
