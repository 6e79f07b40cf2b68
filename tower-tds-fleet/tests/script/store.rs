//! The script of the leases as Redis runs it, on a clock that stands until it is moved.

use std::{cell::RefCell, collections::HashMap};

use mlua::{Function, Lua, LuaString, Table, Variadic};

const SCRIPT: &str = include_str!("../../src/lease.lua");

/// What the server gives scripts: a clock, one hash, channels.
const SERVER: &str = r"
    clock, memory, told = 0, {}, {}
    redis = {}
    local commands = {}
    function commands.TIME()
        return { tostring(math.floor(clock / 1000000)), tostring(clock % 1000000) }
    end
    function commands.INFO() return '# Server\r\nrun_id:' .. run .. '\r\n' end
    function commands.HGET(_, field) return memory[field] or false end
    function commands.HMGET(_, ...)
        local values = {}
        for at, field in ipairs({ ... }) do values[at] = memory[field] or false end
        return values
    end
    function commands.HGETALL()
        local all = {}
        for field, value in pairs(memory) do
            all[#all + 1] = field
            all[#all + 1] = value
        end
        return all
    end
    function commands.HSET(_, ...)
        local args = { ... }
        for at = 1, #args, 2 do
            local value = args[at + 1]
            memory[args[at]] = type(value) == 'number' and string.format('%.17g', value) or value
        end
    end
    function commands.HDEL(_, ...)
        for _, field in ipairs({ ... }) do
            assert(memory[field], field .. ' is not there')
            memory[field] = nil
        end
    end
    function commands.DEL() memory = {} end
    function commands.PUBLISH(channel, text) told[#told + 1] = { channel, text } end
    function redis.call(what, ...)
        if what:sub(1, 1) == 'H' and type(memory) == 'string' then
            error({ err = 'WRONGTYPE Operation against a key holding the wrong kind of value' })
        end
        return commands[what](...)
    end
    function redis.pcall(...)
        local worked, reply = pcall(redis.call, ...)
        return reply
    end
    function redis.error_reply(text) return { err = text } end
    struct = { pack = doubles, unpack = numbers }
";

/// A store with one account.
pub(crate) struct Store {
    lua: Lua,
    script: Function,
    /// In hexadecimal digits.
    pub(crate) run: String,
    pub(crate) terms: String,
    /// On which rung an account begins.
    pub(crate) rung: u32,
    /// How many questions each member has asked, which are all answered.
    questions: RefCell<HashMap<String, i64>>,
}

/// One event of a member.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Told {
    Proven(i64, &'static str, i64),
    Lost(i64, i64),
    Unsent(i64),
    Kept(i64),
}

/// What the script gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) granted: Vec<i64>,
    pub(crate) wait: i64,
    pub(crate) paused: i64,
    pub(crate) live: i64,
    pub(crate) rung: i64,
    pub(crate) opens: i64,
    pub(crate) agreed: bool,
    pub(crate) server: i64,
    pub(crate) unknown: Vec<i64>,
}

/// How long a lease is kept for.
pub(crate) const KEEP: i64 = 20_000_000;

/// 50 a second and the default rules; nothing to recover from.
pub(crate) const DEFAULT: &str = "50 1002000 20000 20040 1 -2 10 0";

impl Store {
    pub(crate) fn new(terms: &str) -> Self {
        let lua = Lua::new();
        let doubles = lua.create_function(doubles).expect("a function");
        let numbers = lua.create_function(numbers).expect("a function");
        lua.globals().set("doubles", doubles).expect("a name");
        lua.globals().set("numbers", numbers).expect("a name");
        lua.load(SERVER).exec().expect("it is Lua");
        let script = lua.load(SCRIPT).into_function().expect("it is Lua");
        let store = Self {
            lua,
            script,
            run: "1".to_owned(),
            terms: terms.to_owned(),
            rung: 0,
            questions: RefCell::default(),
        };
        store.move_to(1_000_000_000_000);
        store
    }

    /// The clock, in microseconds.
    pub(crate) fn move_to(&self, clock: i64) {
        self.lua.globals().set("clock", clock).expect("a number");
    }

    pub(crate) fn flush(&self) {
        let nothing = self.lua.create_table().expect("a table");
        self.lua.globals().set("memory", nothing).expect("a table");
    }

    /// Something that is no account.
    pub(crate) fn put(&self, what: &str) {
        self.lua.globals().set("memory", what).expect("a name");
    }

    pub(crate) fn ask(&self, member: &str, want: i64, told: &[Told]) -> Result<Reply, String> {
        self.ask_with(member, want, 0, told)
    }

    /// As a member that goes on without the store by this share.
    pub(crate) fn ask_with(
        &self,
        member: &str,
        want: i64,
        share: i64,
        told: &[Told],
    ) -> Result<Reply, String> {
        let mut questions = self.questions.borrow_mut();
        let asked = questions.entry(member.to_owned()).or_default();
        *asked += 1;
        self.ask_as(member, want, share, [*asked, *asked - 1, 0], told)
    }

    /// A question's number, that of the last that was answered, and by which server.
    pub(crate) fn ask_as(
        &self,
        member: &str,
        want: i64,
        share: i64,
        numbers: [i64; 3],
        told: &[Told],
    ) -> Result<Reply, String> {
        let globals = self.lua.globals();
        globals.set("KEYS", ["{test}:quota"]).expect("a table");
        globals.set("run", self.run.as_str()).expect("a name");
        // The version before them, and the highest rung to begin on.
        let (rules, recover) = self.terms.rsplit_once(' ').expect("many");
        let mut args = vec![
            format!("4 {rules} {} {recover}", self.rung),
            KEEP.to_string(),
        ];
        args.extend([
            member.to_owned(),
            "to-".to_owned(),
            want.to_string(),
            share.to_string(),
        ]);
        args.extend(numbers.map(|number| number.to_string()));
        for told in told {
            let mut put = |parts: &[&str]| args.extend(parts.iter().map(|&part| part.to_owned()));
            match told {
                Told::Proven(id, word, hint) => {
                    put(&["p", &id.to_string(), word, &hint.to_string()])
                }
                Told::Lost(id, within) => put(&["l", &id.to_string(), &within.to_string()]),
                Told::Unsent(id) => put(&["u", &id.to_string()]),
                Told::Kept(id) => put(&["k", &id.to_string()]),
            }
        }
        globals.set("ARGV", args).expect("a table");
        let reply: Table = self.script.call(()).expect("no error of Lua's");
        if let Ok(error) = reply.get::<String>("err") {
            return Err(error);
        }
        // As Redis does it: numbers lose what is behind the point.
        let number = |at: i64| {
            let number: f64 = reply.get(at).expect("a number");
            assert!(number.fract() == 0.0, "{number} at {at} is cut");
            format!("{number:.0}").parse().expect("a whole number")
        };
        let (count, first): (i64, i64) = (number(1), number(2));
        Ok(Reply {
            granted: (first..)
                .take(usize::try_from(count).expect("a count"))
                .collect(),
            wait: number(3),
            paused: number(4),
            live: number(5),
            rung: number(6),
            opens: number(7),
            agreed: number(8) == 1,
            server: number(9),
            unknown: (10..=reply.raw_len())
                .map(|at| number(i64::try_from(at).expect("few")))
                .collect(),
        })
    }

    /// Whom it has told to ask since the last time, and in how long.
    pub(crate) fn take_told(&self) -> Vec<(String, i64)> {
        let globals = self.lua.globals();
        let told: Vec<Table> = globals.get("told").expect("a table");
        let empty = self.lua.create_table().expect("a table");
        globals.set("told", empty).expect("a table");
        let one = |told: Table| {
            let wait: f64 = told.get(2).expect("a number");
            (
                told.get(1).expect("a channel"),
                format!("{wait:.0}").parse().expect("a number"),
            )
        };
        told.into_iter().map(one).collect()
    }
}

/// As `struct.pack`, of as many numbers as the format names.
fn doubles(lua: &Lua, (format, numbers): (String, Variadic<f64>)) -> mlua::Result<LuaString> {
    assert_eq!(format, format!("<{}", "d".repeat(numbers.len())));
    let bytes: Vec<u8> = numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect();
    lua.create_string(bytes)
}

/// As `struct.unpack`, which gives where it has stopped, too.
fn numbers(
    _: &Lua,
    (format, bytes, at): (String, LuaString, Option<usize>),
) -> mlua::Result<Variadic<f64>> {
    let (count, bytes, at) = (format.len() - 1, bytes.as_bytes(), at.unwrap_or(1));
    let (read, _) = bytes[at - 1..][..count * 8].as_chunks();
    let stops = u32::try_from(at + count * 8).expect("not large");
    let numbers = read.iter().map(|bytes| f64::from_le_bytes(*bytes));
    Ok(numbers.chain([f64::from(stops)]).collect())
}
