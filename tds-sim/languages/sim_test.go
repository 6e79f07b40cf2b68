package sim

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
)

func start(t *testing.T) map[string]string {
	program := os.Getenv("TDS_SIM")
	if program == "" {
		program = "tds-sim"
	}
	command := exec.Command(program)
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { command.Process.Kill(); command.Wait() })
	line, _ := bufio.NewReader(out).ReadBytes('\n')
	sim := map[string]string{}
	if err := json.Unmarshal(line, &sim); err != nil {
		t.Fatal(err)
	}
	return sim
}

func TestEachErrorAndWhatTheServiceSaw(t *testing.T) {
	sim := start(t)
	control := func(path string, fields url.Values) {
		done, err := http.PostForm(sim["admin_url"]+path, fields)
		if err != nil || done.StatusCode != 200 {
			t.Fatal(path, err, done)
		}
	}
	token := func() string {
		form := url.Values{"grant_type": {"client_credentials"}}
		form.Set("client_id", sim["client_id"])
		form.Set("client_secret", sim["client_secret"])
		reply, err := http.PostForm(sim["auth_url"]+"/auth/realms/ServiceConnect/protocol/openid-connect/token", form)
		if err != nil {
			t.Fatal(err)
		}
		var granted struct{ Access_token string }
		json.NewDecoder(reply.Body).Decode(&granted)
		return granted.Access_token
	}
	get := func(token string) (int, string, error) {
		request, _ := http.NewRequest("GET", sim["base_url"]+"/v1/live/bus", nil)
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0, "", err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		return answer.StatusCode, string(body), err
	}
	expect := func(token string, status int, text string) {
		t.Helper()
		got, body, err := get(token)
		if err != nil || got != status || !strings.Contains(body, text) {
			t.Errorf("%d %s %v, not %d %s", got, body, err, status, text)
		}
	}

	good := token()
	expect(good, 200, `"name":"bus"`)
	expect("", 401, "no Authorization header found")
	expect("wrong", 401, "invalid token")
	control("/roles", url.Values{"role": {"none"}})
	expect(token(), 401, "Missing required realm role")
	for _, limit := range []struct {
		setting, value string
		status         int
	}{{"connections", "0", 416}, {"rate", "0", 423}, {"quota", "0/60s", 429}} {
		control("/set", url.Values{limit.setting: {limit.value}})
		expect(good, limit.status, "")
		control("/reset", url.Values{"part": {"settings"}})
	}
	control("/faults", url.Values{"fault": {"503@/v1/live/*"}})
	expect(good, 503, "")
	control("/faults", url.Values{"fault": {"reset-body"}})
	if _, _, err := get(good); err == nil {
		t.Error("a body that is cut short is no error")
	}

	ledger, err := http.Get(sim["admin_url"] + "/ledger?path=/v1/live/bus&wait=9")
	if err != nil {
		t.Fatal(err)
	}
	var seen struct {
		Summary  struct{ Token_posts int }
		Arrivals []struct{ Status int }
	}
	json.NewDecoder(ledger.Body).Decode(&seen)
	statuses := []int{}
	for _, call := range seen.Arrivals {
		statuses = append(statuses, call.Status)
	}
	if seen.Summary.Token_posts != 2 || !reflect.DeepEqual(statuses, []int{200, 401, 401, 401, 416, 423, 429, 503, 200}) {
		t.Error(seen)
	}
}
