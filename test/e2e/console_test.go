package e2e

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stage is a cluster with a failing receiver and dead letters, for an operator to find in the
// console.
type stage struct {
	c    *cluster
	well *receiver
	sick *receiver
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{c: newCluster(t, 3)}
	s.well = newReceiver(t, func(w http.ResponseWriter, r *http.Request, n int) {
		if strings.HasPrefix(r.Header.Get("Carillon-Timer"), "gone-") && n == 1 {
			w.WriteHeader(410)
		}
	})
	s.sick = newReceiver(t, func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(500) })
	m := s.c.all()[0].client
	m.must(t, 201, "PUT", "/v1/topics/orders", fmt.Sprintf(`{"callback":{"url":%q},"breaker":{"failures":2,"window":"10s","open":"10m"},"retry":{"max_attempts":20,"min_backoff":"100ms","max_backoff":"200ms"}}`, s.sick.url()))
	m.must(t, 201, "PUT", "/v1/topics/mail", fmt.Sprintf(`{"callback":{"url":%q}}`, s.well.url()))
	m.must(t, 201, "PUT", "/v1/topics/invoices", fmt.Sprintf(`{"callback":{"url":%q}}`, s.well.url()))
	for i := range 9 {
		m.must(t, 201, "PUT", fmt.Sprintf("/v1/topics/orders/timers/order-%d", 70+i), `{"delay":"0s","payload":{"order":77,"shop":"Amsterdam"},"labels":["eu","vip"]}`)
	}
	for i := range 3 {
		m.must(t, 201, "PUT", fmt.Sprintf("/v1/topics/mail/timers/gone-%d", i), `{"delay":"0s","payload":{"to":"a@b.example"}}`)
	}
	m.must(t, 201, "PUT", "/v1/topics/mail/timers/late", `{"at_ms":1000000000000,"expires_after":"1s"}`)
	for i := range 24 {
		m.must(t, 201, "PUT", fmt.Sprintf("/v1/topics/invoices/timers/inv-%d", i), fmt.Sprintf(`{"delay":"%dm","payload":{"invoice":%d}}`, 2+i*2, i))
	}
	return s
}

// TestConsoleAnswersAtNight: an operator's first questions are answered within few clicks, in a
// real browser.
func TestConsoleAnswersAtNight(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	s := newStage(t)
	m := s.c.all()[0]
	b.size(1280, 1000, "light")

	// Why was order-77 not called? Three clicks from the first page.
	b.open("http://" + m.http + "/")
	b.sees("Nodes", "Topics", "orders", "scheduled", "1 problem, 1 warning", "4 dead letters in mail.", "Redrive or purge")
	b.awaitTrue("the badge is of the worst of them", `document.querySelector('.verdict .badge').innerText === 'problem'`)
	b.awaitTrue("the receiver has one line, the first", fmt.Sprintf(`((l) => l.length === 2 && l[0].innerText.includes(%s) && l[0].innerText.includes('unhealthy') && l[0].innerText.includes('9 timers wait'))([...document.querySelectorAll('.troubles li')])`, quoted(strings.TrimSuffix(s.sick.url(), "/hook"))))
	b.shot("overview-light")
	b.key("/", 191)
	b.awaitTrue("/ goes to the search", "document.activeElement.name === 'q'")
	b.fill("q", "order-77")
	b.click("Find")
	b.sees("Waiting: the receiver is unhealthy", "Attempts", "Amsterdam", "vip", s.sick.url(), "(of the topic)")
	b.awaitTrue("the search is empty again", "document.querySelector('[name=q]').value === ''")
	b.shot("timer-light")
	b.click("vip")
	b.sees("Timers found for “vip”", "order-70", "order-78")

	// Which receiver is sick, and how many timers wait for it?
	b.click("Receivers")
	b.sees(strings.TrimSuffix(s.sick.url(), "/hook"), "calls are paused", "9 waiting")
	b.shot("receivers-light")

	// Which timers come due tonight?
	b.click("Upcoming")
	b.click("Tonight")
	b.sees("Tonight, until 6:00", "In numbers")
	b.awaitTrue("the count ends at six", `[...document.querySelectorAll('.figures')].some((e) => / ?06:00:00/.test(e.innerText))`)
	b.awaitTrue("the timers of the next hour are counted", `[...document.querySelectorAll('.figure b')].some((e) => Number(e.textContent) >= 24)`)
	b.shot("due-light")

	// And in the next year, by weeks.
	m.client.must(t, 201, "PUT", "/v1/topics/invoices/timers/renewal", `{"delay":"300d"}`)
	b.click("Next year")
	b.sees("7 d per bar")
	b.awaitTrue("the renewal is counted", `[...document.querySelectorAll('.figure b')].some((e) => Number(e.textContent) >= 25)`)
	b.shot("year-light")

	// Redrive the last hour's dead letters of one reason.
	b.click("Dead letters")
	b.sees("Dead letters of mail", "stopped: the receiver said stop (3)", "expired: it was too late to call (1)")
	b.click("stopped: ")
	b.choose("the last hour")
	b.click("Redrive all 3")
	b.sees("Redrive 3 dead letters?", "of topic mail with the reason “stopped” that died in the last hour are called again now")
	b.shot("redrive-light")
	b.click("Redrive")
	b.sees("3 of 3 redriven.")
	poll(t, browserLimit, "the receiver is called again for all three", func() bool {
		return s.well.called("mail", "gone-0") > 1 && s.well.called("mail", "gone-1") > 1 && s.well.called("mail", "gone-2") > 1
	})
	b.sees("expired: it was too late to call (1)")

	// Which node leads which shards? And drain a node.
	b.click("Cluster")
	b.sees("Shard leaders", s.c.all()[2].name)
	last := s.c.all()[2].name
	row := fmt.Sprintf(`[...document.querySelectorAll('tr')].find((r) => r.innerText.startsWith(%s))`, quoted(last))
	b.awaitTrue("the node can be drained", row+".querySelector('button')")
	b.eval(row+".querySelector('button').click()", nil)
	b.sees("Drain node " + last + "?")
	b.click("Drain " + last)
	b.awaitTrue("the node leads nothing", `/drain(ing|ed)/.test(`+row+`.innerText)`)
	b.shot("cluster-light")
	b.click("Resume")
	b.awaitTrue("the node is back", `/alive/.test(`+row+`.innerText)`)
	b.content()
}

// TestConsoleChangesTimers: the console can do everything that can be done to a timer or a topic,
// and asks for confirmation before it destroys.
func TestConsoleChangesTimers(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	rec := newReceiver(t, nil)
	p := serve(t, t.TempDir())
	m := newClient(p)
	b.size(1280, 1000, "dark")
	b.open(p.url + "/")
	b.sees("Everything is healthy.", "No topics yet", "carillon ctl add")

	m.must(t, 201, "PUT", "/v1/topics/try", fmt.Sprintf(`{"callback":{"url":%q}}`, rec.url()))
	b.click("Topics")
	b.click("try")
	b.click("Show live events of try")
	b.sees("listening")
	b.click("Add timer")
	b.fill("id", "tea")
	b.fill("delay", "1h")
	b.fill("payload", `{"n": 12345678901234567890, "tea": "green"`)
	b.click("Add")
	b.sees("The payload is not JSON")
	b.fill("payload", `{"n": 12345678901234567890, "tea": "green"}`)
	b.click("Add")
	b.sees("Timer tea added. It runs at", "added") // the event, too
	b.click("tea")
	b.sees("Scheduled: it runs in", `{"n": 12345678901234567890, "tea": "green"}`)
	b.click("Edit")
	b.fill("payload", `{"n":  12345678901234567890,"tea":"black"}`)
	b.key("Escape", 27)
	b.awaitTrue("Escape closes the form", `!document.querySelector('dialog')`)
	b.click("Edit")
	b.fill("payload", `{"n":  12345678901234567890,"tea":"black"}`)
	b.click("Save")
	b.sees("tea saved.", `{"n":  12345678901234567890,"tea":"black"}`)
	b.click("Fire now")
	b.sees("Fire tea now?")
	b.click("Fire now")
	b.sees("Done: called at", "and the receiver answered 200")
	if got := rec.of("try", "tea"); len(got) != 1 || got[0].sum != sumOf(`{"n":  12345678901234567890,"tea":"black"}`) {
		t.Errorf("the receiver got %+v", got)
	}
	b.shot("timer-dark")

	m.must(t, 201, "PUT", "/v1/topics/try/timers/milk", `{"delay":"1h"}`)
	b.open(p.url + "/#/topics/try/timers/milk")
	b.click("Pause")
	b.sees("Pause milk?", "until somebody resumes it")
	b.click("Pause")
	b.sees("Paused. It is not called until it is resumed.")
	b.click("Resume")
	b.sees("Resume milk?")
	b.click("Resume")
	b.sees("Scheduled: it runs in")
	b.click("Cancel timer")
	b.sees("Cancel milk?", "This cannot be undone")
	b.click("Close")
	b.awaitTrue("nothing was done", `!document.querySelector('dialog') && document.body.innerText.includes('Scheduled: it runs in')`)
	b.click("Cancel timer")
	b.click("Cancel timer")
	b.sees("Cancelled. It will not be called.")

	b.open(p.url + "/#/topics/try")
	b.click("Pause")
	b.sees("Pause try?")
	b.click("Pause")
	b.sees("try paused.", "paused")
	m.must(t, 201, "PUT", "/v1/topics/try/timers/wait", `{"delay":"0s"}`)
	b.open(p.url + "/#/topics/try/timers/wait")
	b.sees("Waiting: the topic is paused.")
	m.must(t, 201, "PUT", "/v1/topics/try/timers/later", `{"delay":"1h"}`)
	b.open(p.url + "/#/topics/try/timers/later")
	b.sees("Its topic is paused. Its time is", "It runs in time if you resume the topic by then.")
	b.open(p.url + "/#/topics/try")
	b.click("Resume")
	b.sees("resumed. Timers that are due are called now")
	poll(t, browserLimit, "the timer is called", func() bool { return rec.called("try", "wait") == 1 })
	b.shot("topic-dark")
	for _, hash := range []string{"#/nowhere", "#/cluster/n1", "#/topics/try/nowhere", "#/topics/try/timers", "#/topics/try/timers/wait/more"} {
		b.open(p.url + "/" + hash)
		b.sees("Page not found")
	}
	b.content()
}

// TestConsoleAddsAtAnyTime adds timers by date and time, by cron and by interval, to a topic that
// the first timer creates.
func TestConsoleAddsAtAnyTime(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	p := serve(t, t.TempDir())
	m := newClient(p)
	b.size(1280, 1000, "light")
	b.open(p.url + "/#/topics")
	b.sees("No topics yet")

	form := func(id, option string) {
		b.open(p.url + "/#/topics")
		b.click("Add timer")
		b.fill("topic", "reports")
		b.fill("id", id)
		b.fill("url", "http://127.0.0.1:9/")
		b.choose(option)
	}

	form("monday", "repeatedly, by cron")
	b.fill("cron", "0 8 * * 9")
	b.fill("zone", "Europe/Amsterdam")
	b.click("Add")
	b.sees("day of week: 9 is not within 0 to 7")
	b.fill("cron", "0 8 * * 1")
	b.shot("add-cron-light")
	b.click("Add")
	b.sees("Timer monday added. It runs at", "Scheduled: it runs in", "0 8 * * 1", "Europe/Amsterdam")

	form("once", "at a date and time")
	// The time is typed, by 24 hours.
	next := time.Now().AddDate(1, 0, 0).Truncate(time.Minute)
	b.fill("at", next.Format("2006-01-02 15:04:05"))
	b.click("Add")
	b.sees("Timer once added. It runs at " + next.Format("2006-01-02 15:04:05") + ".000")
	if due := m.read(t, "reports", "once").DueMs; due != next.Unix()*1000 {
		t.Errorf("due at %d, wanted %d", due, next.Unix()*1000)
	}

	form("pulse", "repeatedly, at an interval")
	b.fill("every", "15m")
	b.click("Add")
	b.sees("Timer pulse added", "15m")
	b.content()
}

// TestConsoleChangesWhatWasChanged: the form moves a timer only if it was given another time, and
// shows the payload as it is. While it is open the page goes on: what was typed stays, and what
// somebody else changed since is not overwritten.
func TestConsoleChangesWhatWasChanged(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	p := serve(t, t.TempDir())
	m := newClient(p)
	// The form has no milliseconds: an unchanged field must not lose them.
	due := time.Now().AddDate(1, 0, 0).Truncate(time.Minute).UnixMilli() + 250
	m.must(t, 201, "PUT", "/v1/topics/try/timers/tea", fmt.Sprintf(`{"at_ms":%d,"payload":1,"callback":{"url":"http://127.0.0.1:9/"}}`, due))
	b.size(1280, 1000, "light")
	b.open(p.url + "/#/topics/try/timers/tea")
	b.click("Edit")
	b.awaitTrue("the payload is shown as it is", `document.querySelector('[name="payload"]').value === '1'`)
	b.click("Save")
	b.sees("Nothing is changed.")
	b.fill("payload", "2")
	b.click("Save")
	b.sees("tea saved.")
	if got := m.read(t, "try", "tea"); got.DueMs != due || got.Version != 2 {
		t.Errorf("version %d, due at %d, wanted 2 and %d: its payload alone was changed", got.Version, got.DueMs, due)
	}

	later := time.UnixMilli(due).Add(time.Hour).Format("2006-01-02 15:04:05")
	b.click("Edit")
	b.fill("due", later)
	b.fill("payload", "3")
	m.must(t, 200, "PATCH", "/v1/topics/try/timers/tea", `{"payload":"theirs"}`)
	b.awaitTrue("the page has loaded the change", `document.querySelector('pre').textContent === '"theirs"'`)
	b.awaitTrue("what was typed stays", fmt.Sprintf(`+new Date(document.querySelector('[name="due"]').value) === +new Date(%q) && document.querySelector('[name="payload"]').value === '3'`, later))
	b.click("Save")
	b.sees("the timer is not at that version", "Close this form and open it again")
	if got := m.read(t, "try", "tea"); got.DueMs != due || got.Version != 3 {
		t.Errorf("version %d, due at %d, wanted 3 and %d: another's change came first", got.Version, got.DueMs, due)
	}
	b.click("Cancel")
	b.click("Edit")
	b.fill("due", later)
	b.click("Save")
	poll(t, browserLimit, "the timer is moved to the second that was picked", func() bool {
		return m.read(t, "try", "tea").DueMs == due-250+time.Hour.Milliseconds()
	})
	b.content()
}

// TestConsolePurges: a purge removes the dead letters of one reason for good, and no others.
func TestConsolePurges(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	rec := newReceiver(t, func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(410) })
	p := serve(t, t.TempDir())
	m := newClient(p)
	m.must(t, 201, "PUT", "/v1/topics/mail", fmt.Sprintf(`{"callback":{"url":%q}}`, rec.url()))
	for i := range 3 {
		m.must(t, 201, "PUT", fmt.Sprintf("/v1/topics/mail/timers/gone-%d", i), `{"delay":"0s"}`)
	}
	m.must(t, 201, "PUT", "/v1/topics/mail/timers/late", `{"at_ms":1000000000000,"expires_after":"1s"}`)
	b.size(1280, 1000, "light")
	b.open(p.url + "/#/dead?topic=mail")
	b.sees("stopped: the receiver said stop (3)", "expired: it was too late to call (1)")
	// Each has the time of its death, also one that was never called.
	b.awaitTrue("each has died at a time", `[...document.querySelectorAll('td[data-label="Died"]')].filter((e) => /\d\d:\d\d:\d\d/.test(e.innerText) && / ago/.test(e.innerText)).length === 4`)
	b.click("stopped: ")
	b.click("Purge all 3")
	b.sees("Purge 3 dead letters?", "This cannot be undone.")
	b.click("Cancel")
	b.awaitTrue("nothing was done", `!document.querySelector('dialog')`)
	b.click("Purge all 3")
	b.click("Purge")
	b.sees("3 of 3 purged.", "expired: it was too late to call (1)")
	var left struct{ Timers []timer }
	m.must(t, 200, "GET", "/v1/topics/mail/dead", "").decode(t, &left)
	if len(left.Timers) != 1 || left.Timers[0].ID != "late" {
		t.Errorf("left are %+v", left.Timers)
	}

	// The last one is called at another URL; those that are selected there are purged.
	other := newReceiver(t, nil)
	b.click("any reason")
	b.sees("Died")
	b.tick("Select late")
	b.click("Redrive 1 selected")
	b.sees("Redrive 1 dead letter?")
	b.fill("url", other.url())
	b.click("Redrive")
	b.sees("1 of 1 redriven.")
	poll(t, browserLimit, "the other receiver is called", func() bool { return other.called("mail", "late") == 1 })
	for i := range 2 {
		m.must(t, 201, "PUT", fmt.Sprintf("/v1/topics/mail/timers/again-%d", i), `{"delay":"0s"}`)
	}
	b.open(p.url + "/#/dead?topic=mail")
	b.sees("again-0", "again-1")
	b.tick("Select again-1")
	b.click("Purge 1 selected")
	b.sees("Purge 1 dead letter?")
	b.click("Purge")
	b.sees("1 of 1 purged.")
	m.must(t, 200, "GET", "/v1/topics/mail/dead", "").decode(t, &left)
	if len(left.Timers) != 1 || left.Timers[0].ID != "again-0" {
		t.Errorf("left are %+v", left.Timers)
	}
	b.click("×") // a toast
	b.content()
}

// TestConsoleEditsTopics: a topic is created, edited and deleted. What the node refuses to protect
// timers is shown, and done only if the operator confirms it.
func TestConsoleEditsTopics(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	p := serve(t, t.TempDir())
	m := newClient(p)
	b.size(1280, 1000, "light")
	b.open(p.url + "/#/topics")
	b.click("New topic")
	b.fill("topic", "orders")
	b.fill("callback.url", "http://127.0.0.1:9/")
	b.fill("retry.max_attempts", "many")
	b.click("Create")
	b.sees("Attempts: many is not a number.")
	b.fill("retry.max_attempts", "3")
	b.fill("rate.per_second", "50")
	b.click("More settings")
	b.choose("yes")
	b.fill("window.days", "mon-fri")
	b.fill("window.except", "2026-12-25")
	b.shot("new-topic-light")
	b.click("Create")
	b.sees("Topic orders created.", "3 attempts, waiting from 1s to 1h", "one at a time for each key", "50 per second", "mon-fri 00:00–24:00 UTC, not on 2026-12-25")
	m.must(t, 201, "PUT", "/v1/topics/orders/timers/tea", `{"delay":"1h"}`)

	b.open(p.url + "/#/topics")
	b.click("New topic")
	b.fill("topic", "orders")
	b.click("Create")
	b.sees("There is a topic orders already.")

	policy := func() string { return string(m.must(t, 200, "GET", "/v1/topics/orders", "").body) }
	b.open(p.url + "/#/topics/orders")
	b.click("Edit")
	m.must(t, 200, "PATCH", "/v1/topics/orders", `{"concurrency":7}`)
	b.fill("rate.per_second", "")
	b.click("Save")
	b.sees("it is not at that version", "Close this form and open it again")
	b.click("Cancel")
	b.sees("7 at once")
	b.click("Edit")
	b.fill("rate.per_second", "")
	b.fill("callback.url", "")
	b.click("Save")
	b.sees("1 pending timer would have no callback URL. Nothing was changed.", "Save it anyway")
	b.shot("in-use-light")
	b.tick("force")
	b.click("Save")
	b.sees("Topic orders saved.", "1 timer has no URL now")
	if got := policy(); strings.Contains(got, `"rate"`) || strings.Contains(got, `"url"`) || !strings.Contains(got, `"concurrency":7`) || !strings.Contains(got, `"serial":true`) {
		t.Errorf("the topic is %s", got)
	}

	b.click("Create secret")
	b.click("Create secret")
	b.sees("Copy the new secret now.", "whsec_", "sha256:")
	b.click("Rotate secret")
	b.click("Create secret")
	b.click("Finish secret rotation")
	b.click("Finish")
	b.sees("Only the newest secret signs calls.")
	b.awaitTrue("one secret is left, and is not shown", `document.querySelectorAll('ul.plain li').length === 1 && !document.body.innerText.includes('whsec_')`)

	// Of an ed25519 key the public half is shown, and the private one never.
	b.click("Create key")
	b.click("Create key")
	b.sees("The new key signs calls.", "whpk_")
	b.click("Rotate key")
	b.click("Create key")
	b.awaitTrue("both keys are shown", `[...document.querySelectorAll('ul.plain li')].filter((e) => e.innerText.startsWith('whpk_')).length === 2`)
	b.click("Finish key rotation")
	b.click("Finish")
	b.awaitTrue("one key is left, and no private key is shown", `[...document.querySelectorAll('ul.plain li')].filter((e) => e.innerText.startsWith('whpk_')).length === 1 && !document.body.innerText.includes('whsk_')`)
	if got := policy(); strings.Count(got, "whpk_") != 1 {
		t.Errorf("the topic is %s", got)
	}

	b.click("Delete")
	b.sees("Delete topic orders?")
	b.click("Delete topic")
	b.sees("the topic has timers", "Cancel its 1 timer and remove 0 dead letters.")
	b.tick("force")
	b.click("Delete topic")
	b.sees("Topic orders deleted. 1 timer cancelled.", "No topics yet")
	m.must(t, 404, "GET", "/v1/topics/orders", "")
	b.content()
}

// TestConsoleEditsTimers: all fields of a timer are edited at once, a series shows its next runs
// before it is saved, and many timers are changed by a filter after a dry run.
func TestConsoleEditsTimers(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	rec := newReceiver(t, func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(500) })
	p := serve(t, t.TempDir())
	m := newClient(p)
	// One attempt of a timer fails here, however long the test takes.
	m.must(t, 201, "PUT", "/v1/topics/try", `{"callback":{"url":"http://127.0.0.1:9/"},"retry":{"min_backoff":"1h","max_backoff":"1h"}}`)
	for i := range 3 {
		m.must(t, 201, "PUT", fmt.Sprintf("/v1/topics/try/timers/milk-%d", i), `{"delay":"1h","labels":["dairy"]}`)
	}
	m.must(t, 201, "PUT", "/v1/topics/try/timers/tea", `{"at":"2030-01-02T03:04:05Z"}`)
	m.must(t, 201, "PUT", "/v1/topics/try/timers/daily", `{"repeat":{"cron":"0 8 * * *","zone":"UTC"},"callback":{"url":"http://127.0.0.1:9/own"}}`)
	b.size(1280, 1000, "light")
	b.open(p.url + "/#/topics/try/timers/tea")
	b.sees("http://127.0.0.1:9/", "(of the topic)")
	b.click("Edit")
	b.fill("url", rec.url())
	b.fill("labels", "green, hot")
	b.fill("priority", "9")
	b.fill("expires_after", "10m")
	b.click("Save")
	b.sees("tea saved.", rec.url(), "green", "hot")
	if got := string(m.must(t, 200, "GET", "/v1/topics/try/timers/tea", "").body); !strings.Contains(got, `"labels":["green","hot"]`) || !strings.Contains(got, `"priority":9`) || !strings.Contains(got, `"expires_after":"10m"`) || !strings.Contains(got, `"due":"2030-01-02T03:04:05.000Z"`) {
		t.Errorf("the timer is %s", got)
	}
	b.open(p.url + "/#/topics/try/timers/daily")
	b.sees("Next runs")
	b.click("Edit")
	b.fill("cron", "30 9 * * *")
	b.fill("count", "4")
	b.fill("url", "")
	b.click("Preview")
	b.awaitTrue("the next runs are shown", `document.querySelectorAll('dialog ol.times li').length === 4`)
	b.shot("edit-series-light")
	b.click("Save")
	b.sees("daily saved.", "30 9 * * *", "(of the topic)")
	// A series changes from cron to an interval, and back.
	b.click("Edit")
	b.choose("repeatedly, at an interval")
	b.fill("every", "6h")
	b.click("Save")
	b.sees("daily saved.", "every 6h")
	b.click("Edit")
	b.choose("repeatedly, by cron")
	b.fill("cron", "15 7 * * 1")
	b.fill("zone", "Europe/Amsterdam")
	b.click("Save")
	b.sees("15 7 * * 1 (Europe/Amsterdam)")

	b.open(p.url + "/#/topics/try")
	b.fill("label", "dairy")
	b.key("Tab", 9)
	b.sees("milk-2")
	b.awaitTrue("the filter holds", `!document.body.innerText.includes('daily')`)
	b.click("Reschedule all")
	b.sees("All waiting and running timers of topic try labelled dairy.")
	b.fill("shift", "+48h")
	b.click("Preview")
	b.sees("3 timers match; 3 would be rescheduled. The first is milk-0.")
	b.shot("bulk-light")
	b.click("Reschedule")
	b.sees("3 timers match; 3 rescheduled.")
	if due := m.read(t, "try", "milk-1").DueMs; due < time.Now().Add(48*time.Hour).UnixMilli() {
		t.Errorf("milk-1 is due at %d", due)
	}
	b.click("Cancel all")
	b.click("Preview")
	b.sees("3 timers match; 3 would be cancelled.")
	b.click("Cancel timers")
	b.sees("3 timers match; 3 cancelled.")
	if m.read(t, "try", "milk-1").State != "cancelled" || m.read(t, "try", "tea").State != "scheduled" {
		t.Error("the filter was not kept")
	}

	// A failed attempt is not shown as a success.
	b.click("Show live events of try")
	b.sees("listening")
	m.must(t, 200, "POST", "/v1/topics/try/timers/tea/fire", "")
	b.awaitTrue("the attempt has failed, in red", `[...document.querySelectorAll('.badge.bad')].some((e) => e.innerText === 'failed')`)

	// A receiver that has just failed is not called healthy, and one that nobody calls is not
	// unhealthy.
	left := newReceiver(t, func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(500) })
	m.must(t, 201, "PUT", "/v1/topics/left", fmt.Sprintf(`{"callback":{"url":%q},"retry":{"max_attempts":1},"breaker":{"failures":1,"open":"100ms"}}`, left.url()))
	m.must(t, 201, "PUT", "/v1/topics/left/timers/once", `{"delay":"0s"}`)
	b.open(p.url + "/#/receivers")
	b.sees("a call failed recently", "failed before; the next call tests it")
	b.open(p.url + "/")
	b.sees("1 warning", "1 dead letter in left.")

	// A receiver whose every call fails has a line, though a redirect opens no breaker.
	moved := newReceiver(t, func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(302) })
	m.must(t, 201, "PUT", "/v1/topics/moved", fmt.Sprintf(`{"callback":{"url":%q},"retry":{"max_attempts":20,"min_backoff":"50ms","max_backoff":"1h"}}`, moved.url()))
	m.must(t, 201, "PUT", "/v1/topics/moved/timers/once", `{"delay":"0s"}`)
	b.sees("Receiver "+strings.TrimSuffix(moved.url(), "/hook")+": the last ", " calls failed (redirect 302). 1 timer retries.")
	b.open(p.url + "/#/receivers")
	b.sees("failing", " calls failed")

	// A topic whose timers have URLs of their own is named at the receiver that they call.
	own := newReceiver(t, nil)
	m.must(t, 201, "PUT", "/v1/topics/own", `{}`)
	m.must(t, 201, "PUT", "/v1/topics/own/timers/once", fmt.Sprintf(`{"delay":"0s","callback":{"url":%q}}`, own.url()))
	b.awaitTrue("the topic is named", fmt.Sprintf(`[...document.querySelectorAll('tr')].some((r) => r.innerText.includes(%s) && [...r.querySelectorAll('a')].some((a) => a.innerText === 'own'))`, quoted(strings.TrimSuffix(own.url(), "/hook"))))
	b.content()
}

// TestConsoleSearchesAllTopics: ids, how they begin and labels are found in whichever topic they
// are, by three questions at most. Pages that look at the first topics only say so.
func TestConsoleSearchesAllTopics(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	p := serve(t, t.TempDir())
	m := newClient(p)
	for i := range 1001 {
		m.must(t, 201, "PUT", fmt.Sprintf("/v1/topics/t%04d", i), `{}`)
	}
	m.must(t, 201, "PUT", "/v1/topics/last", `{}`)
	m.must(t, 201, "PUT", "/v1/topics/zoo/timers/far-away", `{"delay":"1h","callback":{"url":"http://127.0.0.1:9/"}}`)
	m.must(t, 201, "PUT", "/v1/topics/zoo/timers/far-behind", `{"delay":"2h","labels":["remote"],"callback":{"url":"http://127.0.0.1:9/"}}`)
	m.must(t, 201, "PUT", "/v1/topics/t0003/timers/far-ahead", `{"delay":"3h","labels":["remote"],"callback":{"url":"http://127.0.0.1:9/"}}`)
	b.size(1280, 1000, "light")
	b.open(p.url + "/#/search?q=far-away")
	b.awaitTrue("the timer opens", `location.hash === '#/topics/zoo/timers/far-away'`)
	const asked = `performance.getEntriesByType('resource').filter((e) => e.name.includes('/v1/') && /timers/.test(e.name)).length`
	b.open(p.url + "/#/search?q=far-")
	b.sees("far-away", "far-behind", "far-ahead")
	b.awaitTrue("few questions were asked", asked+" <= 3")
	b.open(p.url + "/#/search?q=remote")
	b.sees("far-behind", "far-ahead", "zoo", "t0003")
	b.shot("search-light")
	b.open(p.url + "/#/search?q=nowhere")
	b.sees("No timer has this label, or an id that begins with this.")
	b.awaitTrue("few questions were asked", asked+" <= 3")
	b.click("Search the history for this id")
	b.sees("The history of 1,003 topics has no timer with this id.")
	// The overview looks at as many topics, the dead letters at as many for each page, and both say
	// so.
	m.must(t, 200, "PATCH", "/v1/topics/zoo", `{"callback":{"url":"http://127.0.0.1:9/"},"retry":{"max_attempts":1}}`)
	m.must(t, 201, "PUT", "/v1/topics/zoo/timers/gone", `{"delay":"0s"}`)
	m.must(t, 200, "POST", "/v1/topics/t0900/pause", "")
	b.open(p.url + "/")
	b.sees("Topic t0900 is paused.", "Only the first 1,000 topics by name were looked at.")
	b.open(p.url + "/#/dead")
	b.sees("No dead letters.", "1,000 topics are looked at, by name: here those from last on.")
	b.click("Next")
	b.sees("Dead letters of zoo", "gone", "here those from t0999 on.")
	b.click("Back")
	b.sees("No dead letters.", "here those from last on.")
}

// TestConsoleFindsEndedTimers: a timer that ended long ago is found in the history, and opens.
func TestConsoleFindsEndedTimers(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	rec := newReceiver(t, nil)
	p := serve(t, t.TempDir(), "--test-clock=2027-01-01T00:00:00Z")
	m := newClient(p)
	m.must(t, 201, "PUT", "/v1/topics/zoo/timers/long-ago", fmt.Sprintf(`{"delay":"1m","callback":{"url":%q}}`, rec.url()))
	m.must(t, 201, "PUT", "/v1/topics/ape/timers/later", `{"delay":"300d","callback":{"url":"http://127.0.0.1:9/"}}`)
	m.must(t, 200, "POST", "/v1/clock", `{"advance":"2h"}`)
	b.size(1280, 1000, "light")
	b.open(p.url + "/#/search?q=long-ago")
	b.sees("No timer has this label, or an id that begins with this.")
	b.click("Search the history for this id")
	b.awaitTrue("the timer opens", `location.hash === '#/topics/zoo/timers/long-ago'`)
	b.sees("Done: called at", "Ended")
	b.content()
}

// TestConsoleSaysThatAnUpgradeWaits: after an upgrade the cluster page shows how to finalize it,
// until that is done.
func TestConsoleSaysThatAnUpgradeWaits(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	dir := t.TempDir()
	serve(t, dir).stop(t)
	p := begin(t, append([]string{testBinary(t)}, serveArgs(dir, "127.0.0.1:0")...))
	p.awaitReady(t)
	b.size(1280, 1000, "light")
	b.open(p.url + "/#/cluster")
	b.sees(fmt.Sprintf("All nodes run a release with feature level %d; the cluster uses %d.", newestLevel, newestLevel-1), "Until you finalize the upgrade", "carillon ctl upgrade finalize")
	b.shot("upgrade-light")
	tool(t, 0, "ctl", "--url", p.url, "upgrade", "finalize")
	b.awaitTrue("nothing waits any more", fmt.Sprintf(`/feature level %d/.test(document.body.innerText) && !/Until you finalize the upgrade/.test(document.body.innerText)`, newestLevel))
	b.content()
}

// TestConsoleShowsBackups: the cluster page has the schedule of backups and how it stands; one that
// fails is a trouble of the overview. Without a schedule the page shows how to have one.
func TestConsoleShowsBackups(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	b.size(1280, 1000, "light")
	none := serve(t, t.TempDir())
	b.open(none.url + "/#/cluster")
	b.sees("Backups", "There is no backup schedule. To set one: carillon serve --backup-to")
	args := append([]string{binary}, serveArgs(t.TempDir(), "127.0.0.1:0")...)
	p := begin(t, append(args, "--backup-to", "s3://vault/carillon", "--backup-every", "*/5 * * * *"),
		"AWS_ENDPOINT_URL_S3=http://127.0.0.1:1", "AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY=hidden", "AWS_REGION=us-east-1")
	p.awaitReady(t)
	b.open(p.url + "/#/cluster")
	b.sees("*/5 * * * * UTC", "none yet", "failing", "connection refused")
	b.shot("backups-light")
	b.open(p.url + "/")
	b.sees("1 warning", "A backup is overdue by", "connection refused")
	b.content()
}

// TestConsoleSignsIn: without a token the console shows nothing. It keeps the token in the tab's
// session storage only, not in addresses, cookies or storage that tabs share.
func TestConsoleSignsIn(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	dir := t.TempDir()
	const token = "crl_0123456789012345678901234567890123456789012"
	file := filepath.Join(dir, "auth.yaml")
	line := fmt.Sprintf("- {name: night, sha256: \"%x\", scopes: [read], topics: [\"*\"]}\n", sha256.Sum256([]byte(token)))
	if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, filepath.Join(dir, "data"), "--auth-file", file)
	b.size(1280, 900, "light")
	b.open(p.url + "/")
	b.sees("Sign in to Carillon")
	b.awaitTrue("no page is behind it", `!document.querySelector("nav.pages, dialog")`)
	b.shot("signin-light")
	b.fill("token", "crl_wrong")
	b.click("Sign in")
	b.sees("The node does not know this token")
	b.fill("token", token)
	b.key("Enter", 13)
	b.click("Sign in")
	b.sees("Everything is healthy.", "Sign out", "need a token with the scope cluster")
	for _, hash := range []string{"#/topics", "#/cluster"} {
		b.open(p.url + "/" + hash)
		b.awaitTrue("no button is there for what the token may not do", `document.querySelector('main .card') && ![...document.querySelectorAll('main button')].length`)
	}
	b.sees("Shard leaders")
	var kept struct{ Session, Local, Cookie, Address string }
	b.eval(`({ session: JSON.stringify(sessionStorage), local: JSON.stringify(localStorage), cookie: document.cookie, address: location.href })`, &kept)
	if !strings.Contains(kept.Session, token) || strings.Contains(kept.Local+kept.Cookie+kept.Address, "crl_") {
		t.Errorf("%+v", kept)
	}
	b.click("Sign out")
	b.sees("Sign in to Carillon")
	b.eval(`JSON.stringify(sessionStorage)`, &kept.Session)
	if strings.Contains(kept.Session, "crl_") {
		t.Errorf("after signing out: %s", kept.Session)
	}
	b.content()

	// Without its line in the auth file the token ends, and the page says why it asks for one.
	b.fill("token", token)
	b.click("Sign in")
	b.sees("Shard leaders")
	writeFile(t, file, fmt.Sprintf("- {name: other, sha256: \"%x\", scopes: [read], topics: [\"*\"]}\n", sha256.Sum256([]byte("crl_other"))))
	p.signal(t, syscall.SIGHUP)
	b.sees("Sign in to Carillon", "The node does not know your token any more.")

	off := serve(t, filepath.Join(dir, "other"), "--no-console")
	newClient(off).must(t, 404, "GET", "/", "")
}

// TestConsoleOfANodeThatHangs: a page does not go on saying that all is well when its node takes
// connections and answers nothing.
func TestConsoleOfANodeThatHangs(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	p := serve(t, t.TempDir())
	b.size(1280, 900, "light")
	b.open(p.url + "/")
	b.sees("Everything is healthy.")
	p.signal(t, syscall.SIGSTOP)
	b.sees("This node does not answer. Is it running?")
	b.awaitTrue("nothing is said to be healthy", `!/healthy/.test(document.body.innerText)`)
	b.click("Cluster")
	b.sees("This node does not answer. Is it running?")
	p.signal(t, syscall.SIGCONT)
	b.sees("Shard leaders", "healthy")
	b.awaitTrue("the answer has come", `!/does not answer/.test(document.body.innerText)`)

	// Nor does it go on listening to it.
	b.click("Live")
	b.sees("listening")
	p.signal(t, syscall.SIGSTOP)
	b.sees("This node does not answer. Is it running?", "connecting")
	p.signal(t, syscall.SIGCONT)
	b.sees("listening")
	b.content()
}

// TestConsoleKeepsAFormWhenItsTokenEnds: signing in is asked for above it, and then it can be sent.
func TestConsoleKeepsAFormWhenItsTokenEnds(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	dir := t.TempDir()
	const old, next = "crl_0000000000000000000000000000000000000000001", "crl_0000000000000000000000000000000000000000002"
	file := filepath.Join(dir, "auth.yaml")
	line := func(token string) string {
		return fmt.Sprintf("- {name: night, sha256: \"%x\", scopes: [read, add, topics], topics: [\"*\"]}\n", sha256.Sum256([]byte(token)))
	}
	if err := os.WriteFile(file, []byte(line(old)), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, filepath.Join(dir, "data"), "--auth-file", file)
	b.size(1280, 900, "light")
	b.open(p.url + "/#/topics")
	b.sees("Sign in to Carillon")
	b.fill("token", old)
	b.click("Sign in")
	b.sees("Topics")
	b.click("Add timer")
	b.fill("topic", "orders")
	b.fill("url", "https://shop.example/hook")
	b.fill("payload", `{"typed":"for ten minutes"}`)
	writeFile(t, file, line(next))
	p.signal(t, syscall.SIGHUP)
	b.sees("The node does not know your token any more.")
	b.key("Escape", 27) // there is nothing else to do
	b.awaitTrue("it is still asked for", `document.querySelectorAll("dialog[open]").length === 2`)
	b.fill("token", next)
	b.click("Sign in")
	b.awaitTrue("it is signed in", `!document.body.innerText.includes("Sign in to Carillon")`)
	b.awaitTrue("the payload is there", `document.querySelector("textarea[name=payload]").value.includes("ten minutes")`)
	b.click("Add")
	b.sees("added. It runs at")
	b.content()
}

// TestConsoleOffersWhatATokenMayAdd: a topic without timers is shown with an add to that topic. An
// add is said to create a topic only where this token's add does.
func TestConsoleOffersWhatATokenMayAdd(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "auth.yaml")
	tokens := map[string]string{
		"crl_0000000000000000000000000000000000000000001": `[read, add, topics, admin], topics: ["orders*"]`,
		"crl_0000000000000000000000000000000000000000002": `[read, add], topics: ["*"]`,
	}
	var lines strings.Builder
	for token, may := range tokens {
		fmt.Fprintf(&lines, "- {name: n%s, sha256: \"%x\", scopes: %s}\n", token[len(token)-1:], sha256.Sum256([]byte(token)), may)
	}
	writeFile(t, file, lines.String())
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, filepath.Join(dir, "data"), "--auth-file", file)
	b.size(1280, 900, "light")
	signIn := func(token, hash string) {
		b.open(p.url + "/" + hash)
		b.sees("Sign in to Carillon")
		b.fill("token", token)
		b.click("Sign in")
	}
	signIn("crl_0000000000000000000000000000000000000000001", "#/topics/orders2")
	b.sees("Adding a timer creates it", "carillon ctl add orders2 --delay")
	b.eval(`fetch("/v1/topics/orders", { method: "PUT", body: "{}", headers: { "Content-Type": "application/json", Authorization: "Bearer crl_0000000000000000000000000000000000000000001" } }).then(() => 0)`, nil)
	b.open(p.url + "/#/topics/orders")
	b.sees("Due in the next hour", "To add a timer: carillon ctl add orders --delay")
	b.open(p.url + "/#/topics/mail")
	b.sees("there is no topic mail that this token reaches")
	b.awaitTrue("no add is offered", `!document.body.innerText.includes("creates it")`)
	b.click("Sign out")
	signIn("crl_0000000000000000000000000000000000000000002", "#/topics/mail")
	b.sees("there is no such topic")
	b.awaitTrue("no add is offered", `!document.body.innerText.includes("creates it")`)
	b.content()
}

// contrastOf returns the texts whose contrast with their background is below WCAG 2 AA.
const contrastOf = `(() => {
  const parse = (c) => { const m = c.match(/[\d.]+/g).map(Number); return { rgb: m.slice(0, 3), a: m[3] === undefined ? 1 : m[3] }; };
  const light = (rgb) => { const [r, g, b] = rgb.map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.a > 0.99) return c.rgb; } return [255, 255, 255]; };
  const bad = [];
  for (const e of document.querySelectorAll('body *')) {
    if (e.closest('.hidden, .skip') || e.offsetParent === null || e.disabled || ![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
    const s = getComputedStyle(e), a = light(parse(s.color).rgb), b = light(behind(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), size = parseFloat(s.fontSize);
    if (ratio < (size >= 24 || size >= 18.66 && s.fontWeight >= 700 ? 3 : 4.5)) bad.push(e.tagName + '.' + e.className + ' ' + e.textContent.trim().slice(0, 40) + ' ' + ratio.toFixed(2));
  }
  return bad;
})()`

// TestConsoleIsReadable: no page is wider than a phone, also with the longest names and a URL without
// a place to break, all texts have WCAG AA contrast in both
// colour schemes, every field and button has a name, and the keyboard reaches the search.
func TestConsoleIsReadable(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	s := newStage(t)
	url := "http://" + s.c.all()[1].http + "/"
	long := strings.Repeat("t", 128)
	s.c.ok(t, "PUT", "/v1/topics/"+long, `{"callback":{"url":"http://127.0.0.1:9/`+strings.Repeat("p", 1900)+`"}}`)
	s.c.ok(t, "PUT", "/v1/topics/"+long+"/timers/"+long, `{"delay":"1h","labels":["`+strings.Repeat("l", 64)+`"]}`)
	s.c.ok(t, "PUT", "/v1/topics/"+long+"/timers/dead", `{"delay":"0s","retry":{"max_attempts":1}}`)
	pages := []struct{ hash, text string }{
		{"#/dead?topic=" + long, "max_attempts"}, {"#/topics/" + long, "Policy"}, {"#/topics/" + long + "/timers/" + long, "Attempts"},
		{"#/", "Nodes"}, {"#/topics", "orders"}, {"#/topics/orders", "Policy"}, {"#/topics/orders/timers/order-71", "Attempts"}, {"#/dead?topic=mail", "Dead letters of mail"},
		{"#/due", "In numbers"}, {"#/receivers", "calls are paused"}, {"#/cluster", "Shard leaders"}, {"#/live", "Events of all nodes"}, {"#/search?q=order-7", "order-70"},
	}
	for i, page := range pages {
		b.size(390, 844, "light")
		b.open(url + page.hash)
		b.sees(page.text)
		b.awaitTrue("the page has settled", "!document.querySelector('.loading')")
		for _, width := range []int{390, 1280} {
			for _, scheme := range []string{"light", "dark"} {
				b.size(width, 844, scheme)
				var wide int
				b.eval("document.documentElement.scrollWidth", &wide)
				if wide > width {
					t.Errorf("%s at %d pixels is %d wide", page.hash, width, wide)
				}
				var aside []string
				b.eval(`[...document.querySelectorAll('.scroll')].filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.innerText.slice(0, 80))`, &aside)
				if len(aside) > 0 {
					t.Errorf("%s at %d pixels: tables go on to the right: %q", page.hash, width, aside)
				}
				var hidden []string
				b.eval(`[...document.querySelectorAll('nav.pages [aria-current]')].filter((e) => { const r = e.getBoundingClientRect(); return r.left < 0 || r.right > innerWidth; }).map((e) => e.innerText)`, &hidden)
				if len(hidden) > 0 {
					t.Errorf("%s at %d pixels: the link of the page that is open is out of sight: %q", page.hash, width, hidden)
				}
				var bad []string
				if b.eval(contrastOf, &bad); len(bad) > 0 {
					t.Errorf("%s in %s: too little contrast: %q", page.hash, scheme, bad)
				}
				b.eval(`[...document.querySelectorAll('button, a, input, select, textarea')].filter((e) => !(e.innerText || '').trim() && !e.getAttribute('aria-label') && !e.closest('label')).map((e) => e.outerHTML.slice(0, 80))`, &bad)
				if len(bad) > 0 {
					t.Errorf("%s: without a name: %q", page.hash, bad)
				}
				b.shot(fmt.Sprintf("page-%d-%s-%d", i, scheme, width))
			}
		}
	}
	// A form on a phone, in the dark.
	b.size(390, 844, "dark")
	b.open(url + "#/topics/orders")
	b.click("Edit")
	b.click("More settings")
	var bad []string
	if b.eval(contrastOf, &bad); len(bad) > 0 {
		t.Errorf("the form: too little contrast: %q", bad)
	}
	b.eval(`[...document.querySelectorAll('dialog, dialog *')].filter((e) => e.getBoundingClientRect().right > innerWidth).map((e) => e.outerHTML.slice(0, 80))`, &bad)
	if len(bad) > 0 {
		t.Errorf("the form is wider than a phone: %q", bad)
	}
	b.shot("form-dark-390")
	b.click("Cancel")
	// Toasts on a phone: two at most, and no control is under them.
	b.open(url + "#/topics/invoices")
	b.sees("inv-9")
	for range 2 {
		b.click("Pause")
		b.click("Pause")
		b.awaitTrue("the topic is paused", `/paused/.test(document.querySelector('h1').innerText) && !document.querySelector('dialog')`)
		b.click("Resume")
		b.awaitTrue("the topic is resumed", `!/paused/.test(document.querySelector('h1').innerText)`)
	}
	b.awaitTrue("two toasts are left", `document.querySelectorAll('.toasts .notice').length === 2`)
	b.eval(`[...document.querySelectorAll('main button, main a, main input, main select, footer')].filter((e) => {
		e.scrollIntoView({ block: 'center' });
		const r = e.getBoundingClientRect();
		return r.width && document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2)?.closest('.toasts');
	}).map((e) => e.outerHTML.slice(0, 80))`, &bad)
	b.eval(`scrollTo(0, 0)`, nil)
	if len(bad) > 0 {
		t.Errorf("under a toast: %q", bad)
	}
	b.shot("toasts-dark-390")
	// The first tab stop skips the header, and further ones reach the search.
	b.size(1280, 844, "light")
	b.open(url)
	b.sees("Nodes")
	b.key("Tab", 9)
	b.awaitTrue("the first stop is the way past the header", "document.activeElement.className === 'skip'")
	for range 2 {
		b.key("Tab", 9)
	}
	b.awaitTrue("the search is reached", "document.activeElement.name === 'q'")
	b.content()
}

// TestConsoleShowsAddsThatAreTaken: the command that a topic's page shows for a first timer fits
// the topic. A topic that is pulled refuses a callback, and one with a URL needs none.
func TestConsoleShowsAddsThatAreTaken(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	p := serve(t, t.TempDir())
	m := newClient(p)
	m.must(t, 201, "PUT", "/v1/topics/plain", `{}`)
	m.must(t, 201, "PUT", "/v1/topics/pulled", `{"delivery":"pull"}`)
	m.must(t, 201, "PUT", "/v1/topics/pushed", `{"callback":{"url":"http://127.0.0.1:9/"}}`)
	b.size(1280, 1000, "light")
	for topic, callback := range map[string]bool{"plain": true, "pulled": false, "pushed": false} {
		b.open(p.url + "/#/topics/" + topic)
		b.sees("To add one: carillon ctl add "+topic+" --delay", "To add a timer: carillon ctl add "+topic+" --delay")
		b.awaitTrue(topic+": a callback where one is needed",
			fmt.Sprintf(`[...document.querySelectorAll('main code')].filter((c) => c.innerText.startsWith('carillon ctl add ')).every((c) => c.innerText.includes('--callback') === %v)`, callback))
	}
}

// TestConsoleExplainsNames: a name that a topic cannot have is refused in the form, with the rule.
func TestConsoleExplainsNames(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	p := serve(t, t.TempDir())
	b.size(1280, 1000, "light")
	b.open(p.url + "/#/topics")
	b.click("New topic")
	b.fill("topic", "bad name")
	b.click("Create")
	b.sees("Name: 1–128 of A-Z a-z 0-9 _ . -, starting with a letter or digit")
	b.fill("topic", "good-name")
	b.click("Create")
	b.sees("Topic good-name created.")
}

// TestConsoleKeepsTheFocus: by keyboard alone, one is where one was when a form ends, however it ends.
func TestConsoleKeepsTheFocus(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	p := serve(t, t.TempDir())
	newClient(p).must(t, 201, "PUT", "/v1/topics/orders", `{"callback":{"url":"http://127.0.0.1:9/"}}`)
	b.size(1280, 1000, "light")
	b.open(p.url + "/#/topics/orders")
	b.sees("Add timer")
	for _, end := range []string{"", "Cancel", "Add"} {
		b.eval(foundText("button", "Add timer")+".focus()", nil)
		b.enter()
		b.awaitTrue("the form has the focus", "document.activeElement.closest('dialog')")
		if end == "" {
			b.key("Escape", 27)
		} else {
			b.eval(fmt.Sprintf("[...document.querySelectorAll('dialog button')].find((e) => e.innerText === %s).focus()", quoted(end)), nil)
			b.enter()
		}
		b.awaitTrue("the button has the focus after "+end, "!document.querySelector('dialog') && document.activeElement.innerText === 'Add timer'")
	}
	b.content()
}
