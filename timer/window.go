package timer

// Window is when attempts of a topic's timers may start: on some days, between two times of day.
// The texts are as the client gave them; recurrence.NewHours reads and checks them.
type Window struct {
	Zone   string   `json:",omitempty"` // IANA; "": UTC
	Days   string   `json:",omitempty"` // "mon-fri", "mon,wed"; "": every day
	From   string   `json:",omitempty"` // "08:00"; "": the start of the day
	To     string   `json:",omitempty"` // "20:00"; "": 24:00
	Except []string `json:",omitempty"` // dates on which it does not open: "2026-12-25"
}
