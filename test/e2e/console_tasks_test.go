package e2e

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestConsoleOperatorTasks: an operator's ten tasks are done in one visit, by clicks and keys
// alone, and the API has what came of each.
func TestConsoleOperatorTasks(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	c := newCluster(t, 3)
	m := c.all()[0].client
	well, repaired := newReceiver(t, nil), newReceiver(t, nil)
	answers := func(status int) *receiver {
		return newReceiver(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "boom: db down")
		})
	}
	sick, gone := answers(500), answers(410)
	m.must(t, 201, "PUT", "/v1/topics/orders", fmt.Sprintf(`{"callback":{"url":%q},"breaker":{"failures":2,"window":"10s","open":"10m"},"retry":{"max_attempts":20,"min_backoff":"100ms","max_backoff":"200ms"}}`, sick.url()))
	m.must(t, 201, "PUT", "/v1/topics/mail", fmt.Sprintf(`{"callback":{"url":%q}}`, gone.url()))
	m.must(t, 201, "PUT", "/v1/topics/invoices", fmt.Sprintf(`{"callback":{"url":%q}}`, well.url()))
	for i := range 5 {
		m.must(t, 201, "PUT", fmt.Sprint("/v1/topics/orders/timers/order-", i), `{"delay":"0s","payload":{"order":77}}`)
		m.must(t, 201, "PUT", fmt.Sprint("/v1/topics/invoices/timers/inv-", i), `{"delay":"2h","labels":["paid"]}`)
	}
	for i := range 3 {
		m.must(t, 201, "PUT", fmt.Sprint("/v1/topics/mail/timers/gone-", i), `{"delay":"0s"}`)
	}
	m.must(t, 201, "PUT", "/v1/topics/mail/timers/late", `{"at_ms":1000000000000,"expires_after":"1s"}`)
	m.must(t, 201, "PUT", "/v1/topics/invoices/timers/renewal", `{"delay":"720h"}`)
	m.must(t, 201, "PUT", "/v1/topics/invoices/timers/daily", `{"repeat":{"cron":"0 8 * * *","zone":"UTC"}}`)
	text := func(path string) string { return string(m.must(t, 200, "GET", "/v1/"+path, "").body) }

	press := func(text string) { // a click that a hand could make: nothing lies over the button
		b.awaitTrue(fmt.Sprintf("%q can be clicked", text), `((e) => { e.scrollIntoView({ block: 'center' }); const r = e.getBoundingClientRect(); return e.contains(document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2)); })(`+foundText("button, a, summary", text)+`)`)
		b.click(text)
	}
	b.size(1280, 1000, "light")
	b.open("http://" + c.all()[0].http + "/") // the only address that is given
	began, number := time.Now(), 0
	done := func(task string) {
		number++
		b.awaitTrue("no dialog is left", `!document.querySelector('dialog')`)
		b.shot(fmt.Sprintf("task-%d", number))
		t.Logf("%d. %s: %v", number, task, time.Since(began).Round(time.Millisecond))
		began = time.Now()
	}

	b.sees("5 timers wait for it. Last error: status 500.")
	press("Open receivers")
	b.sees("calls are paused", "5 waiting")
	press("orders")
	b.sees("Waiting: 5 for an unhealthy receiver.")
	press("order-3")
	b.sees("Waiting: the receiver is unhealthy")
	if got := text("topics/orders/timers/order-3"); !strings.Contains(got, `"waits_for":"breaker"`) {
		t.Errorf("it waits for something else: %s", got)
	}
	done("find what is late, and why")

	press("orders") // the way back at the head of the page
	press("Edit")
	b.fill("callback.url", repaired.url())
	b.fill("retry.max_attempts", "7")
	press("Save")
	b.sees("Topic orders saved.", repaired.url())
	if got := text("topics/orders"); !strings.Contains(got, repaired.url()) || !strings.Contains(got, `"max_attempts":7`) {
		t.Errorf("the policy is %s", got)
	}
	poll(t, browserLimit, "what was late is called", func() bool {
		return repaired.called("orders", "order-3") == 1 && repaired.called("orders", "order-4") == 1
	})
	done("edit a policy")

	press("Pause")
	b.sees("Pause orders?")
	press("Pause")
	b.sees("orders paused.")
	if !strings.Contains(text("topics/orders"), `"paused":true`) {
		t.Error("the topic is not paused")
	}
	press("Resume")
	b.sees("resumed. Timers that are due are called now")
	if strings.Contains(text("topics/orders"), `"paused":true`) {
		t.Error("the topic is paused still")
	}
	done("pause a topic and resume it")

	press("Topics")
	press("invoices")
	b.fill("label", "paid")
	b.awaitTrue("the filter holds", `document.body.innerText.includes('inv-4') && !document.body.innerText.includes('renewal')`)
	press("Cancel all")
	b.sees("labelled paid")
	press("Preview")
	b.sees("5 timers match; 5 would be cancelled.")
	if got := m.read(t, "invoices", "inv-4").State; got != "scheduled" {
		t.Errorf("after the dry run inv-4 is %s", got)
	}
	press("Cancel timers")
	b.sees("5 timers match; 5 cancelled.")
	if m.read(t, "invoices", "inv-4").State != "cancelled" || m.read(t, "invoices", "renewal").State != "scheduled" {
		t.Error("not what the filter selects was cancelled")
	}
	done("cancel by a filter, after a dry run")

	b.key("/", 191)
	b.awaitTrue("/ goes to the search", "document.activeElement.name === 'q'")
	b.fill("q", "renewal")
	b.enter()
	b.sees("Scheduled: it runs in")
	press("Edit")
	due := time.Now().AddDate(0, 2, 0).Truncate(time.Second)
	b.fill("due", due.Format("2006-01-02 15:04:05"))
	b.enter()
	b.sees("renewal saved.")
	if got := m.read(t, "invoices", "renewal").DueMs; got != due.UnixMilli() {
		t.Errorf("due at %d, not %d", got, due.UnixMilli())
	}
	done("find a timer by its id and change its time")

	b.key("/", 191)
	b.awaitTrue("/ goes to the search", "document.activeElement.name === 'q'")
	b.fill("q", "daily")
	b.enter()
	b.sees("Next runs", "0 8 * * *")
	b.awaitTrue("five runs are shown", `document.querySelectorAll('ol.times li').length === 5`)
	press("Edit")
	b.fill("cron", "30 9 * * 1-5")
	b.fill("zone", "Europe/Amsterdam")
	press("Preview")
	b.awaitTrue("the next runs are shown first", `document.querySelectorAll('dialog ol.times li').length === 5`)
	press("Save")
	b.sees("daily saved.", "30 9 * * 1-5", "Europe/Amsterdam")
	if got := text("topics/invoices/timers/daily"); !strings.Contains(got, `"cron":"30 9 * * 1-5"`) || !strings.Contains(got, "Europe/Amsterdam") {
		t.Errorf("the series is %s", got)
	}
	done("see the next runs of a series and edit it")

	press("Dead letters")
	b.sees("Dead letters of mail", "stopped: the receiver said stop (3)")
	press("stopped: ")
	press("Redrive all 3")
	b.sees("Redrive 3 dead letters?")
	b.fill("url", repaired.url())
	press("Redrive")
	b.sees("3 of 3 redriven.")
	poll(t, browserLimit, "the other receiver is called for each", func() bool {
		return repaired.called("mail", "gone-0") == 1 && repaired.called("mail", "gone-1") == 1 && repaired.called("mail", "gone-2") == 1
	})
	done("redrive dead letters to another URL")

	press("any reason")
	b.sees("expired: it was too late to call (1)")
	press("Purge all 1")
	b.sees("Purge 1 dead letter?")
	press("Purge")
	b.sees("1 of 1 purged.")
	if got := text("topics/mail/dead"); strings.Contains(got, `"id"`) {
		t.Errorf("left is %s", got)
	}
	done("purge dead letters")

	press("Topics")
	press("New topic")
	b.fill("topic", "reports")
	b.fill("callback.url", well.url())
	b.fill("rate.per_second", "50")
	b.enter()
	b.sees("Topic reports created.", "50 per second")
	press("Add timer")
	b.fill("id", "first")
	b.fill("delay", "0s")
	b.enter()
	b.sees("Timer first added.")
	if got := text("topics/reports"); !strings.Contains(got, `"per_second":50`) || !strings.Contains(got, well.url()) {
		t.Errorf("the topic is %s", got)
	}
	poll(t, browserLimit, "its timer is called", func() bool { return well.called("reports", "first") == 1 })
	done("create a topic and try it")

	last := c.all()[2].name
	state := func() string { return c.view(t).stateOf(last) }
	row := fmt.Sprintf(`[...document.querySelectorAll('tr')].find((r) => r.innerText.startsWith(%s))`, quoted(last))
	press("Cluster")
	b.sees("Cluster", "healthy", "Shard leaders", last)
	b.awaitTrue("the node can be drained", row+".querySelector('button')")
	b.eval(row+".querySelector('button').click()", nil)
	press("Drain " + last)
	poll(t, browserLimit, "the node leads nothing", func() bool { // of three replicas none can go elsewhere
		return strings.HasPrefix(state(), "drain") && !slices.ContainsFunc(c.view(t).Shards, func(s shardView) bool { return s.Leader == last })
	})
	b.awaitTrue("the page shows it", `/drain(ing|ed)/.test(`+row+`.innerText)`)
	press("Resume")
	poll(t, browserLimit, "the node is back", func() bool { return state() == "alive" })
	b.awaitTrue("the page shows it", `/alive/.test(`+row+`.innerText)`)
	done("read the cluster's health; drain a node and resume it")
	b.content()
}
