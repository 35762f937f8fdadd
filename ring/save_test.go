package ring

import "bytes"

// Save is the whole state at once.
func (s *State) Save() []byte {
	b, _ := s.BeginSave().Next(nil, 1<<30)
	return b
}

// Load reads a snapshot that Save made.
func (s *State) Load(b []byte) error {
	state, _, err := s.Read(bytes.NewReader(b))
	if err == nil {
		s.Replace(state)
	}
	return err
}

// applied is Apply for commands that this build knows.
func (s *State) applied(nowMs int64, data []byte) Reply {
	r, err := s.Apply(nowMs, data)
	if err != nil {
		panic(err)
	}
	return r.(Reply)
}
